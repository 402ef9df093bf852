//! Runs in a Gemini history, where its upstream has no code execution (docs/design/wire-formats.md#code-execution).
//!
//! The client saw them as `executableCode` and `codeExecutionResult` and sends them back. Without a saved turn they become
//! calls of the tool that runs programs and their responses, so that the upstream gets nothing that it does not know.

use super::read::Fields;
use super::result_texts::{ReplacedTurn, ResultTexts};
use crate::format::gemini::run;
use crate::json::{self, Span};
use crate::request::Request;
use crate::shown_run::{ShownEnd, ShownRun};

/// The kind of a part of a model's content, as far as runs go.
enum RunPart {
    Code,
    Result,
    Image,
    /// Says nothing; clients make such parts of frames whose parts they do not keep.
    Empty,
    Other,
}

/// The object of a part in either spelling.
fn object<'a>(part: &Fields<'a>, [camel, snake]: [&str; 2]) -> Option<Fields<'a>> {
    let key = [camel, snake].into_iter().find(|key| part.span(key).is_some())?;
    Some(part.object(key))
}

const CODE: [&str; 2] = ["executableCode", "executable_code"];
const RESULT: [&str; 2] = ["codeExecutionResult", "code_execution_result"];
const IMAGE: [&str; 2] = ["inlineData", "inline_data"];
const SIGNATURE: [&str; 2] = ["thoughtSignature", "thought_signature"];

/// Whether a request may hold runs. True for too many, never false for one that does.
pub fn may_hold_runs(request: &Request) -> bool {
    let has = |name: &&str| memchr::memmem::find(request.raw(), name.as_bytes()).is_some();
    CODE.iter().chain(&RESULT).any(has)
}

/// Code of a part, or outcome and output of one: what makes a run the same run.
pub(super) fn canonical(part: &Fields<'_>) -> Option<(&'static str, String)> {
    if let Some(code) = object(part, CODE) {
        return Some((CODE[0], code.text("code").into_owned()));
    }
    let result = object(part, RESULT)?;
    let (outcome, output) = (result.text("outcome"), result.text("output"));
    Some((RESULT[0], format!("{outcome}\n{}", output.trim())))
}

fn kind(part: &Fields<'_>) -> RunPart {
    let has = |keys: [&str; 2]| keys.iter().any(|key| part.span(key).is_some());
    if has(CODE) {
        RunPart::Code
    } else if has(RESULT) {
        RunPart::Result
    } else if has(IMAGE) {
        RunPart::Image
    } else if matches!(part.raw("text"), b"" | br#""""#) && !has(SIGNATURE) && part.is_only("text") {
        RunPart::Empty
    } else {
        RunPart::Other
    }
}

/// Turns the runs of a model's turn into calls of `run_tool` and their responses. `None` if it has none.
pub(super) fn expand(
    src: &[u8],
    contents: &[Span],
    run_tool: &str,
    words: &mut dyn ResultTexts,
) -> Option<ReplacedTurn> {
    let spans: Vec<Span> = contents.iter().flat_map(|content| run::parts(src, *content)).collect();
    let parts: Vec<(Span, Fields<'_>)> = spans.into_iter().map(|span| (span, Fields::read(src, span))).collect();
    if !parts
        .iter()
        .any(|(_, part)| matches!(kind(part), RunPart::Code | RunPart::Result))
    {
        return None;
    }
    let mut writer = RunWriter::default();
    let mut after_result = false;
    for (at, (span, part)) in parts.iter().enumerate() {
        let kind = kind(part);
        let shows_file = after_result && matches!(kind, RunPart::Image);
        after_result = matches!(kind, RunPart::Result) || shows_file;
        match kind {
            RunPart::Code => {
                writer.finish_round();
                writer.call(part, run_tool);
            }
            RunPart::Result => {
                let images = parts[at + 1..]
                    .iter()
                    .take_while(|(_, part)| matches!(self::kind(part), RunPart::Image));
                writer.response(part, (run_tool, images.count()), words);
            }
            RunPart::Empty => {}
            // The model read of the file in the result.
            RunPart::Image if shows_file => {}
            RunPart::Image | RunPart::Other => {
                writer.finish_round();
                writer.turn.push(span.of(src).to_vec());
            }
        }
    }
    Some(writer.close(run_tool))
}

/// The contents so far.
#[derive(Default)]
struct RunWriter {
    change: ReplacedTurn,
    turn: Vec<Vec<u8>>,
    /// Ids of calls without a response.
    open: Vec<String>,
}

impl RunWriter {
    /// Where responses have come, the calls so far and these become contents of their own.
    fn finish_round(&mut self) {
        if self.change.open_results.is_empty() {
            return;
        }
        let turn = std::mem::take(&mut self.turn);
        self.change.messages.push(content("model", &turn));
        let results = std::mem::take(&mut self.change.open_results);
        self.change.messages.push(content("user", &results));
    }

    fn call(&mut self, part: &Fields<'_>, run_tool: &str) {
        let code = object(part, CODE).map(|code| (code.text("id").into_owned(), code.text("code").into_owned()));
        let (id, code) = code.unwrap_or_default();
        let mut out = named("functionCall", &id, run_tool);
        out.extend_from_slice(br#","args":"#);
        out.extend_from_slice(&run::arguments(&code));
        out.push(b'}');
        if let Some(signature) = SIGNATURE.iter().map(|key| part.raw(key)).find(|raw| !raw.is_empty()) {
            out.extend_from_slice(br#","thoughtSignature":"#);
            out.extend_from_slice(signature);
        }
        out.push(b'}');
        self.turn.push(out);
        self.open.push(id);
    }

    /// `images`: pictures behind the result, which are files that the run made.
    fn response(&mut self, part: &Fields<'_>, (run_tool, images): (&str, usize), words: &mut dyn ResultTexts) {
        let Some(result) = object(part, RESULT) else { return };
        let id = result.text("id");
        // By its id, else in order. A result without its code has nothing to answer.
        let index = self.open.iter().position(|open| *open == id);
        let Some(index) = index.or((!self.open.is_empty()).then_some(0)) else {
            return;
        };
        let id = self.open.remove(index);
        let (key, end) = match &*result.text("outcome") {
            run::OK => ("output", ShownEnd::Exit(0)),
            run::DEADLINE => ("error", ShownEnd::Timeout),
            _ => ("error", ShownEnd::Failed),
        };
        let run_text = words.run(&ShownRun {
            stdout: result.text("output").into_owned(),
            unnamed_files: images,
            ..ShownRun::new(end)
        });
        self.change
            .open_results
            .push(answer(&id, run_tool, key, &run_text.text));
        self.change.files.extend(run_text.files);
    }

    fn close(mut self, run_tool: &str) -> ReplacedTurn {
        for id in std::mem::take(&mut self.open) {
            let lost = answer(&id, run_tool, "error", "result no longer available");
            self.change.open_results.push(lost);
        }
        if !self.turn.is_empty() {
            self.change.messages.push(content("model", &self.turn));
        }
        self.change
    }
}

fn content(role: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let head = format!(r#"{{"role":"{role}","parts":["#);
    [head.as_bytes(), parts.join(&b',').as_slice(), b"]}"].concat()
}

/// The beginning of a call or a response. One that has no id is matched by its name and place.
fn named(key: &str, id: &str, name: &str) -> Vec<u8> {
    let mut out = format!(r#"{{"{key}":{{"#).into_bytes();
    if !id.is_empty() {
        out.extend_from_slice(br#""id":"#);
        json::push_string(&mut out, id);
        out.push(b',');
    }
    out.extend_from_slice(br#""name":"#);
    json::push_string(&mut out, name);
    out
}

fn answer(id: &str, name: &str, key: &str, text: &str) -> Vec<u8> {
    let mut out = named("functionResponse", id, name);
    out.extend_from_slice(format!(r#","response":{{"{key}":"#).as_bytes());
    json::push_string(&mut out, text);
    out.extend_from_slice(b"}}}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(contents: &str) -> Option<String> {
        let src = contents.as_bytes();
        let elements = json::elements(src, json::document(src).unwrap()).unwrap();
        let change = expand(src, &elements, "run_code", &mut crate::history::tests::Plain)?;
        let all = [change.messages, change.open_results].concat();
        Some(String::from_utf8(all.join(&b'\n')).unwrap())
    }

    #[test]
    fn runs_become_calls_and_responses_whatever_the_client_kept_of_them() {
        // Two at once with ids, in one content, with the picture that the second made.
        let both = r#"[{"role":"model","parts":[{"text":"I compute."},
            {"executableCode":{"id":"a","language":"PYTHON","code":"print(1)"},"thoughtSignature":"c2ln"},
            {"executableCode":{"id":"b","language":"PYTHON","code":"fail"}},
            {"codeExecutionResult":{"id":"b","outcome":"OUTCOME_FAILED","output":"no"}},
            {"inlineData":{"mimeType":"image/png","data":"AA=="}},
            {"codeExecutionResult":{"id":"a","outcome":"OUTCOME_OK","output":"1\n"}},{"text":"Done."}]}]"#;
        let expected = [
            r#"{"role":"model","parts":[{"text":"I compute."},{"functionCall":{"id":"a","name":"run_code","args":{"code":"print(1)"}},"thoughtSignature":"c2ln"},{"functionCall":{"id":"b","name":"run_code","args":{"code":"fail"}}}]}"#,
            r#"{"role":"user","parts":[{"functionResponse":{"id":"b","name":"run_code","response":{"error":"failed | no |  |  | 1"}}},{"functionResponse":{"id":"a","name":"run_code","response":{"output":"exit 0 | 1 |  |  | 0"}}}]}"#,
            r#"{"role":"model","parts":[{"text":"Done."}]}"#,
        ];
        assert_eq!(changed(both).unwrap(), expected.join("\n"));
        // A content for each frame, without ids, in the other spelling, one after another.
        let frames = r#"[{"role":"model","parts":[{"executable_code":{"code":"a"}}]},
            {"role":"model","parts":[{"code_execution_result":{"outcome":"OUTCOME_DEADLINE_EXCEEDED"}}]},{"role":"model","parts":[{"text":""}]},{"role":"model","parts":[{}]},
            {"role":"model","parts":[{"executable_code":{"code":"b"}}]}]"#;
        let expected = [
            r#"{"role":"model","parts":[{"functionCall":{"name":"run_code","args":{"code":"a"}}}]}"#,
            r#"{"role":"user","parts":[{"functionResponse":{"name":"run_code","response":{"error":"timeout |  |  |  | 0"}}}]}"#,
            r#"{"role":"model","parts":[{"functionCall":{"name":"run_code","args":{"code":"b"}}}]}"#,
            r#"{"functionResponse":{"name":"run_code","response":{"error":"result no longer available"}}}"#,
        ];
        assert_eq!(changed(frames).unwrap(), expected.join("\n"));
        // A result of nothing says nothing; a turn without runs stays as it came.
        let lone = r#"[{"role":"model","parts":[{"codeExecutionResult":{"outcome":"OUTCOME_OK"}},{"text":"a"}]}]"#;
        assert_eq!(changed(lone).unwrap(), r#"{"role":"model","parts":[{"text":"a"}]}"#);
        assert_eq!(
            changed(r#"[{"role":"model","parts":[{"inlineData":{"data":""}}]}]"#),
            None
        );
    }
}
