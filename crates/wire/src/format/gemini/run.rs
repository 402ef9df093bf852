//! The tool `codeExecution` where it is served here: its declaration, and runs in the API's own parts.
//!
//! The API has one language, Python. A command, and code in another language, is shown as Python that starts it.

use std::borrow::Cow;

use base64::Engine as _;

use super::unit::GeminiCall;
use crate::drive::{CallResult, GeneratedFile, NativeRun};
use crate::format::run_ids::RunIds;
use crate::json::{self, Member, Span};
use crate::request::{CodeTool, Request};

/// The tool's name in messages.
const TOOL: &str = "codeExecution";
/// Both spellings of it in an entry of `tools`.
const MEMBERS: [&str; 2] = [TOOL, "code_execution"];
/// Media types of files that are shown as parts: images that the API takes back in a history.
const IMAGES: [&str; 3] = ["image/png", "image/jpeg", "image/webp"];
/// Most bytes of images in one answer. The client sends them back in every later request, and the API takes 20 MB in one.
const MAX_IMAGE_BYTES: usize = 4 << 20;

fn is_code_execution(src: &[u8], member: &Member) -> bool {
    MEMBERS.iter().any(|name| json::key_is(src, member, name)) && !json::is_null(src, member.value)
}

/// Whether an entry of `tools` declares the tool.
fn declares(src: &[u8], entry: Span) -> bool {
    let members = json::members(src, entry).unwrap_or_default();
    members.iter().any(|member| is_code_execution(src, member))
}

/// The tool of a request. `closed`: why nothing may be injected beside built-in tools, asked with and without this one.
pub(super) fn tool(
    request: &Request,
    closed: impl Fn(&dyn Fn(&Member) -> bool) -> Option<&'static str>,
) -> Option<CodeTool> {
    let src = request.raw();
    let entries = json::one_or_more(src, request.present("tools")?);
    entries.iter().any(|entry| declares(src, *entry)).then(|| CodeTool {
        name: TOOL.to_owned(),
        closes: closed(&|_| true).is_some() && closed(&|member| !is_code_execution(src, member)).is_none(),
        ..CodeTool::default()
    })
}

/// The rest of an entry of `tools` without the tool; `None` if nothing is left.
pub(super) fn kept(src: &[u8], entry: Span) -> Option<Vec<u8>> {
    if !declares(src, entry) {
        return Some(entry.of(src).to_vec());
    }
    let members = json::members(src, entry).unwrap_or_default();
    let rest = members.iter().filter(|member| !is_code_execution(src, member));
    let rest: Vec<&[u8]> = rest.map(|member| member.whole().of(src)).collect();
    (!rest.is_empty()).then(|| [b"{", rest.join(&b","[..]).as_slice(), b"}"].concat())
}

/// How Python starts a command, and code for node: what stands before and behind a string. A string of JSON is one of
/// Python too.
const COMMAND: [&str; 2] = ["import shlex, subprocess\nsubprocess.run(shlex.split(", "))"];
const NODE: [&str; 2] = [
    "import subprocess\nsubprocess.run([\"node\", \"-\"], text=True, input=",
    ")",
];

fn within([begin, end]: [&str; 2], text: &str) -> String {
    format!("{begin}{}{end}", String::from_utf8_lossy(&json::quoted(text)))
}

fn inner([begin, end]: [&str; 2], code: &str) -> Option<String> {
    let literal = code.strip_prefix(begin)?.strip_suffix(end)?.as_bytes();
    let span = json::document(literal).ok()?;
    json::text(literal, span).map(Cow::into_owned)
}

/// The Python code that a call of the tool that runs programs asks for.
fn code(arguments: &str) -> String {
    let src = arguments.as_bytes();
    let members = json::object(src).unwrap_or_default();
    let text = |key| json::member(src, &members, key).and_then(|member| json::text(src, member.value));
    match (text("code").filter(|code| !code.is_empty()), text("command")) {
        (Some(code), _) if text("language").as_deref() == Some("node") => within(NODE, &code),
        (Some(code), _) => code.into_owned(),
        (None, Some(command)) => within(COMMAND, &command),
        (None, None) => arguments.to_owned(),
    }
}

/// The arguments whose [`code`] this is.
pub(crate) fn arguments(code: &str) -> Vec<u8> {
    let (key, text, language) = if let Some(command) = inner(COMMAND, code) {
        ("command", Cow::Owned(command), "")
    } else if let Some(code) = inner(NODE, code) {
        ("code", Cow::Owned(code), r#","language":"node""#)
    } else {
        ("code", Cow::Borrowed(code), "")
    };
    let mut out = format!(r#"{{"{key}":"#).into_bytes();
    json::push_string(&mut out, &text);
    out.extend_from_slice(language.as_bytes());
    out.push(b'}');
    out
}

/// The beginning of a part that names its run; on paths of Vertex AI, whose API has no such ids, it names none.
fn begin(key: &str, id: Option<&str>) -> Vec<u8> {
    let mut out = format!(r#"{{"{key}":{{"#).into_bytes();
    if let Some(id) = id {
        out.extend_from_slice(br#""id":"#);
        json::push_string(&mut out, id);
        out.push(b',');
    }
    out
}

/// A call as a part. `signature`: the thought signature of the call, as JSON.
fn code_part(id: Option<&str>, arguments: &str, signature: Option<&[u8]>) -> Vec<u8> {
    let mut out = begin("executableCode", id);
    out.extend_from_slice(br#""language":"PYTHON","code":"#);
    json::push_string(&mut out, &code(arguments));
    out.push(b'}');
    if let Some(signature) = signature {
        out.extend_from_slice(br#","thoughtSignature":"#);
        out.extend_from_slice(signature);
    }
    out.push(b'}');
    out
}

/// The outcomes of a run, in the API's words.
pub(crate) const OK: &str = "OUTCOME_OK";
const FAILED: &str = "OUTCOME_FAILED";
pub(crate) const DEADLINE: &str = "OUTCOME_DEADLINE_EXCEEDED";

/// Outcome and output: of a good run what it printed, of another one what it printed and its errors, or else how it ended,
/// which is the first line of what the model reads.
fn outcome(result: &CallResult) -> (&'static str, String) {
    let run = result.native_run();
    let word = match &*run {
        NativeRun { timed_out: true, .. } => DEADLINE,
        NativeRun { return_code: 0, .. } => return (OK, run.stdout.clone()),
        _ => FAILED,
    };
    let why = match &*run.stderr {
        "" => result.text.lines().next().unwrap_or_default(),
        stderr => stderr,
    };
    let parted = !run.stdout.is_empty() && !run.stdout.ends_with('\n');
    (
        word,
        [run.stdout.as_str(), if parted { "\n" } else { "" }, why].concat(),
    )
}

/// A result as a part.
fn result_part(id: Option<&str>, result: &CallResult) -> Vec<u8> {
    let (word, output) = outcome(result);
    let mut out = begin("codeExecutionResult", id);
    out.extend_from_slice(format!(r#""outcome":"{word}","output":"#).as_bytes());
    json::push_string(&mut out, &output);
    out.extend_from_slice(b"}}");
    out
}

/// A file as a part, if it is an image and fits what is left of [`MAX_IMAGE_BYTES`].
fn image_part(file: &GeneratedFile, left: &mut usize) -> Option<Vec<u8>> {
    if !IMAGES.contains(&&*file.media_type) {
        return None;
    }
    *left = left.checked_sub(file.bytes.len())?;
    let data = base64::engine::general_purpose::STANDARD.encode(&file.bytes);
    let part = format!(
        r#"{{"inlineData":{{"mimeType":"{}","data":"{data}"}}}}"#,
        file.media_type
    );
    Some(part.into_bytes())
}

/// The runs of an answer that the client sees.
#[derive(Debug, Default)]
pub(super) struct ShownRuns {
    /// The tool whose runs are shown; `None`: none are.
    tool: Option<String>,
    has_ids: bool,
    ids: RunIds,
    /// Runs of the answer so far.
    count: u64,
    /// Bytes of images that the answer has.
    image_bytes: usize,
}

impl ShownRuns {
    /// `tool`: the tool whose runs are shown, if any are; `has_ids`: whether with ids.
    pub(super) fn new(tool: Option<String>, has_ids: bool) -> Self {
        Self {
            tool,
            has_ids,
            ..Self::default()
        }
    }

    pub(super) fn begin_round(&mut self) {
        self.ids.begin_round();
    }

    /// Whether calls of this tool are shown.
    pub(super) fn shows(&self, name: &str) -> bool {
        self.tool.as_deref() == Some(name)
    }

    /// A call of the answer with this id as a part. `signature`: as JSON.
    pub(super) fn code_part(&mut self, answer_id: &str, call: &GeminiCall, signature: Option<&[u8]>) -> Vec<u8> {
        let id = self.ids.of_call("run_", answer_id, self.count, &call.id);
        self.count += 1;
        code_part(self.has_ids.then_some(&*id), &call.arguments, signature)
    }

    /// The results of the calls that were shown, in their order, each with the images that the run made.
    pub(super) fn result_parts(&mut self, results: &[CallResult]) -> Vec<Vec<u8>> {
        let mut left = MAX_IMAGE_BYTES - self.image_bytes;
        let mut parts = Vec::new();
        for result in results {
            if !self.shows(&result.name) {
                continue;
            }
            let Some(id) = self.ids.of_result() else { continue };
            parts.push(result_part(self.has_ids.then_some(&*id), result));
            parts.extend(result.files.iter().filter_map(|file| image_part(file, &mut left)));
        }
        self.image_bytes = MAX_IMAGE_BYTES - left;
        parts
    }
}

/// The parts of a content.
pub(crate) fn parts(src: &[u8], content: Span) -> Vec<Span> {
    json::get(src, content, "parts")
        .map(|span| json::one_or_more(src, span))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_says_what_runs_and_leads_back_to_the_call() {
        for (called, shown) in [
            (r#"{"code":"print(1)"}"#, "print(1)"),
            (
                r#"{"command":"python3 a.py \"2 3\""}"#,
                "import shlex, subprocess\nsubprocess.run(shlex.split(\"python3 a.py \\\"2 3\\\"\"))",
            ),
            (
                r#"{"code":"console.log(\"é\")","language":"node"}"#,
                "import subprocess\nsubprocess.run([\"node\", \"-\"], text=True, input=\"console.log(\\\"é\\\")\")",
            ),
        ] {
            assert_eq!(code(called), shown);
            assert_eq!(String::from_utf8(arguments(shown)).unwrap(), called);
        }
        // What is shown of broken arguments is what came.
        assert_eq!(code("{\"code\": "), "{\"code\": ");
    }

    #[test]
    fn outcomes_are_in_the_words_of_the_api() {
        let run = |stdout: &str, stderr: &str, return_code, timed_out| CallResult {
            text: "exit 3\nmore".to_owned(),
            native: Some(NativeRun {
                stdout: stdout.to_owned(),
                stderr: stderr.to_owned(),
                return_code,
                timed_out,
                file_ids: Vec::new(),
            }),
            ..CallResult::default()
        };
        for (result, word, output) in [
            (run("1\n", "warned", 0, false), OK, "1\n"),
            (run("1", "2", 3, false), FAILED, "1\n2"),
            (run("", "", 3, false), FAILED, "exit 3"),
            (run("1\n", "", 124, true), DEADLINE, "1\nexit 3"),
            (
                CallResult {
                    text: "no".to_owned(),
                    is_error: true,
                    ..CallResult::default()
                },
                FAILED,
                "no",
            ),
        ] {
            assert_eq!(outcome(&result), (word, output.to_owned()));
        }
    }

    #[test]
    fn images_are_shown_within_a_bound() {
        let file = |media_type: &str, size: usize| GeneratedFile {
            name: "a".to_owned(),
            media_type: media_type.to_owned(),
            bytes: vec![0; size].into(),
        };
        let mut left = 10;
        assert!(image_part(&file("image/png", 6), &mut left).is_some());
        assert!(image_part(&file("text/csv", 1), &mut left).is_none());
        assert!(image_part(&file("image/png", 5), &mut left).is_none());
        assert_eq!(left, 4);
        assert!(image_part(&file("image/jpeg", 4), &mut left).is_some());
    }
}
