//! Ids of files and containers of this gateway in a request: no provider knows them.

use std::borrow::Cow;

use crate::format::splice;
use crate::json::{self, Span, ValueKind};
use crate::request::Request;
use crate::route::Format;

/// Prefix of ids of files that are kept here; they are never requested from a provider.
pub const FILE_PREFIX: &str = "file_knack_";
/// Prefix of ids of containers that OpenAI's API gives out here.
pub const CONTAINER_PREFIX: &str = "cntr_knack_";
/// Prefix of ids of containers that answers of Messages show.
pub const ANSWER_CONTAINER_PREFIX: &str = "container_knack_";

/// A part of a user's message that is a file of Knack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPart {
    /// The whole part.
    pub span: Span,
    /// The id of the file.
    pub id: String,
    /// The part's type, if it asks the model itself to read the file: only its provider could give it to it.
    pub for_model: Option<String>,
}

/// The Knack's ids that a request names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnFiles {
    /// Parts of messages, in order.
    pub parts: Vec<OwnPart>,
    /// The container that it names.
    pub container: Option<String>,
    /// Files for a container that is to be made, in order.
    pub container_files: Vec<String>,
}

/// Whether an id is that of a file of Knack.
pub fn is_own_file(id: &str) -> bool {
    id.starts_with(FILE_PREFIX)
}

/// Whether an id is that of a container of Knack.
pub fn is_own_container(id: &str) -> bool {
    id.starts_with(CONTAINER_PREFIX) || id.starts_with(ANSWER_CONTAINER_PREFIX)
}

/// Reads the files and the container of Knack that a request names.
pub fn read(request: &Request) -> OwnFiles {
    let src = request.raw();
    let mut found = OwnFiles {
        parts: splice::user_parts(request)
            .filter_map(|span| part(request.format(), src, span))
            .collect(),
        ..OwnFiles::default()
    };
    match request.format() {
        Format::Messages => {
            let span = request.present("container");
            let id = span.and_then(|span| json::text(src, span).or_else(|| json::get_text(src, span, "id")));
            found.container = id.map(Cow::into_owned).filter(|id| is_own_container(id));
        }
        Format::Responses => {
            for place in code_environments(request) {
                if let Some(id) = container(src, place).filter(|id| is_own_container(id)) {
                    found.container = Some(id.into_owned());
                }
                let ids = file_ids(src, place).into_iter().filter(|id| is_own_file(id));
                found.container_files.extend(ids.map(Cow::into_owned));
            }
        }
        Format::Chat | Format::Gemini => {}
    }
    found
}

fn part(format: Format, src: &[u8], span: Span) -> Option<OwnPart> {
    let kind = json::get_text(src, span, "type")?;
    let (id, for_model) = match (format, kind.as_ref()) {
        (Format::Messages, "container_upload") | (Format::Responses, "input_file") => {
            (json::get_text(src, span, "file_id")?, false)
        }
        (Format::Chat, "file") => (json::get_text(src, json::get(src, span, "file")?, "file_id")?, false),
        (Format::Responses, "input_image") => (json::get_text(src, span, "file_id")?, true),
        (Format::Messages, "document" | "image") => {
            (json::get_text(src, json::get(src, span, "source")?, "file_id")?, true)
        }
        _ => return None,
    };
    is_own_file(&id).then(|| OwnPart {
        span,
        id: id.into_owned(),
        for_model: for_model.then(|| kind.into_owned()),
    })
}

/// Where the tools of a Responses request say where programs run.
fn code_environments(request: &Request) -> Vec<Span> {
    let src = request.raw();
    let tools = request.present("tools").and_then(|span| json::elements(src, span).ok());
    let tools = tools.unwrap_or_default().into_iter();
    tools.filter_map(|tool| code_environment(src, tool)).collect()
}

/// Where one tool of a Responses request says where programs run.
pub(crate) fn code_environment(src: &[u8], tool: Span) -> Option<Span> {
    match json::get_text(src, tool, "type")?.as_ref() {
        "shell" => json::get(src, tool, "environment"),
        "code_interpreter" => json::get(src, tool, "container"),
        _ => None,
    }
}

/// The container that an environment names.
pub(crate) fn container(src: &[u8], environment: Span) -> Option<Cow<'_, str>> {
    json::text(src, environment).or_else(|| json::get_text(src, environment, "container_id"))
}

/// The files that an environment names.
pub(crate) fn file_ids(src: &[u8], environment: Span) -> Vec<Cow<'_, str>> {
    if json::kind(src, environment) != Some(ValueKind::Object) {
        return Vec::new();
    }
    let list = json::get(src, environment, "file_ids").and_then(|span| json::elements(src, span).ok());
    let list = list.unwrap_or_default();
    list.into_iter().filter_map(|span| json::text(src, span)).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::route::{Route, route};

    fn found(path: &str, body: &str) -> OwnFiles {
        let Route::Model(route) = route("POST", path) else {
            panic!("no route")
        };
        read(&Request::parse(route, Bytes::from(body.to_owned())).unwrap())
    }

    #[test]
    fn parts_of_each_format_name_files_of_ours_and_no_others() {
        for (path, key, part, for_model) in [
            (
                "/v1/messages",
                "messages",
                r#"{"type":"container_upload","file_id":"ID"}"#,
                None,
            ),
            (
                "/v1/messages",
                "messages",
                r#"{"type":"document","source":{"type":"file","file_id":"ID"}}"#,
                Some("document"),
            ),
            (
                "/v1/responses",
                "input",
                r#"{"type":"input_file","file_id":"ID"}"#,
                None,
            ),
            (
                "/v1/responses",
                "input",
                r#"{"type":"input_image","file_id":"ID"}"#,
                Some("input_image"),
            ),
            (
                "/v1/chat/completions",
                "messages",
                r#"{"type":"file","file":{"file_id":"ID"}}"#,
                None,
            ),
        ] {
            let body = |id| {
                format!(
                    r#"{{"{key}":[{{"role":"user","content":[{}]}}]}}"#,
                    part.replace("ID", id)
                )
            };
            let own = found(path, &body("file_knack_1")).parts;
            assert_eq!((own.len(), own[0].id.as_str()), (1, "file_knack_1"), "{part}");
            assert_eq!(own[0].for_model.as_deref(), for_model);
            assert!(found(path, &body("file_01")).parts.is_empty());
        }
    }

    #[test]
    fn containers_are_named_by_the_request_or_by_its_tools() {
        let messages =
            |container: &str| found("/v1/messages", &format!(r#"{{"messages":[],"container":{container}}}"#));
        let responses = |tool: &str| found("/v1/responses", &format!(r#"{{"input":"x","tools":[{tool}]}}"#));
        let own = Some("cntr_knack_1".to_owned());
        assert_eq!(messages(r#""cntr_knack_1""#).container, own);
        assert_eq!(messages(r#"{"id":"cntr_knack_1","skills":[]}"#).container, own);
        assert_eq!(messages(r#""container_01""#).container, None);
        let shell = r#"{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_knack_1"}}"#;
        assert_eq!(responses(shell).container, own);
        assert_eq!(
            responses(r#"{"type":"code_interpreter","container":"cntr_knack_1"}"#).container,
            own
        );
        assert_eq!(
            responses(r#"{"type":"code_interpreter","container":"cntr_1"}"#),
            OwnFiles::default()
        );
        let files = r#"{"type":"shell","environment":{"type":"container_auto","file_ids":["file_knack_1","file-2"]}}"#;
        assert_eq!(responses(files).container_files, ["file_knack_1"]);
    }
}
