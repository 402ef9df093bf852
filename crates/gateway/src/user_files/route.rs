//! Which requests are about files and containers that live here, and in which dialect. Pure.

use http::{HeaderMap, Method};
use knack_registry::Dialect;
use knack_wire::own_files::{is_own_container, is_own_file};

/// What is asked, with the ids of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the APIs")]
pub enum Call {
    Upload,
    Files,
    File(String),
    Content(String),
    DeleteFile(String),
    CreateContainer,
    Containers,
    Container(String),
    DeleteContainer(String),
    AddContainerFile(String),
    ContainerFiles(String),
    ContainerFile(String, String),
    ContainerFileContent(String, String),
    DeleteContainerFile(String, String),
    /// A path of the API with a method that it does not have.
    NotAllowed,
}

/// The word in `anthropic-beta` that asks for the older shapes.
const BETA: &str = "files-api-2025-04-14";

/// The call that a request makes; `None`: it is the provider's. Ids of ours are served here always; uploads, lists and new
/// containers only if they are `kept_here`.
pub fn route(method: &Method, path: &str, headers: &HeaderMap, kept_here: bool) -> Option<(Dialect, Call)> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let at = segments
        .iter()
        .position(|segment| matches!(*segment, "files" | "containers"))?;
    let (before, rest) = (segments.get(..at)?, segments.get(at + 1..)?);
    let is_own = match (segments.get(at).copied(), rest.first()) {
        (Some("files"), Some(id)) => is_own_file(id),
        (_, Some(id)) => kept_here && is_own_container(id),
        (_, None) => kept_here && matches!(before.last(), None | Some(&"v1")),
    };
    if !is_own {
        return None;
    }
    let dialect = Dialect::of(headers, BETA);
    let text = |text: &&str| (*text).to_owned();
    let call = if segments.get(at).copied() == Some("files") {
        match (method.as_str(), rest) {
            ("POST", []) => Call::Upload,
            ("GET", []) => Call::Files,
            ("GET", [id]) => Call::File(text(id)),
            ("DELETE", [id]) => Call::DeleteFile(text(id)),
            ("GET", [id, "content"]) => Call::Content(text(id)),
            _ => Call::NotAllowed,
        }
    } else {
        match (method.as_str(), rest) {
            ("POST", []) => Call::CreateContainer,
            ("GET", []) => Call::Containers,
            ("GET", [id]) => Call::Container(text(id)),
            ("DELETE", [id]) => Call::DeleteContainer(text(id)),
            ("POST", [id, "files"]) => Call::AddContainerFile(text(id)),
            ("GET", [id, "files"]) => Call::ContainerFiles(text(id)),
            ("GET", [id, "files", file]) => Call::ContainerFile(text(id), text(file)),
            ("GET", [id, "files", file, "content"]) => Call::ContainerFileContent(text(id), text(file)),
            ("DELETE", [id, "files", file]) => Call::DeleteContainerFile(text(id), text(file)),
            _ => Call::NotAllowed,
        }
    };
    Some((dialect, call))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str, kept_here: bool) -> Option<Call> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        route(&method, path, &HeaderMap::new(), kept_here).map(|(_, call)| call)
    }

    #[test]
    fn ids_of_ours_are_served_here_and_the_rest_only_by_the_setting() {
        let id = || "file_knack_a".to_owned();
        let one = || "cntr_knack_a".to_owned();
        let file = || "cfile_knack_b".to_owned();
        for (method, path, without, with) in [
            ("POST", "/v1/files", None, Some(Call::Upload)),
            ("GET", "/files", None, Some(Call::Files)),
            ("GET", "/gw/v1/files", None, Some(Call::Files)),
            ("PUT", "/v1/files", None, Some(Call::NotAllowed)),
            (
                "GET",
                "/v1/files/file_knack_a",
                Some(Call::File(id())),
                Some(Call::File(id())),
            ),
            (
                "GET",
                "/gw/files/file_knack_a/content",
                Some(Call::Content(id())),
                Some(Call::Content(id())),
            ),
            (
                "DELETE",
                "/v1/files/file_knack_a",
                Some(Call::DeleteFile(id())),
                Some(Call::DeleteFile(id())),
            ),
            (
                "GET",
                "/v1/files/file_knack_a/x",
                Some(Call::NotAllowed),
                Some(Call::NotAllowed),
            ),
            ("GET", "/v1/files/file-1", None, None),
            ("DELETE", "/v1/files/file_01", None, None),
            ("GET", "/v1beta/files", None, None),
            ("POST", "/upload/v1beta/files", None, None),
            ("POST", "/v1/uploads", None, None),
            ("POST", "/v1/containers", None, Some(Call::CreateContainer)),
            ("GET", "/v1/containers", None, Some(Call::Containers)),
            ("GET", "/v1/containers/cntr_1", None, None),
            ("GET", "/v1/containers/cntr_1/files", None, None),
            ("GET", "/v1/containers/cntr_knack_a", None, Some(Call::Container(one()))),
            ("POST", "/v1/containers/cntr_knack_a", None, Some(Call::NotAllowed)),
            (
                "DELETE",
                "/v1/containers/cntr_knack_a",
                None,
                Some(Call::DeleteContainer(one())),
            ),
            (
                "POST",
                "/v1/containers/cntr_knack_a/files",
                None,
                Some(Call::AddContainerFile(one())),
            ),
            (
                "GET",
                "/v1/containers/cntr_knack_a/files",
                None,
                Some(Call::ContainerFiles(one())),
            ),
            (
                "GET",
                "/v1/containers/cntr_knack_a/files/cfile_knack_b/content",
                None,
                Some(Call::ContainerFileContent(one(), file())),
            ),
            (
                "DELETE",
                "/v1/containers/cntr_knack_a/files/cfile_knack_b",
                None,
                Some(Call::DeleteContainerFile(one(), file())),
            ),
        ] {
            assert_eq!(found(method, path, false), without, "{method} {path} without");
            assert_eq!(found(method, path, true), with, "{method} {path} with");
        }
    }
}
