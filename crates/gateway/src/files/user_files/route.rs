//! Which requests are about files and containers that live here, and in which dialect. Pure.

use http::{HeaderMap, Method, Uri};
use knack_registry::{Dialect, allowed_methods, is_base_path, namespace_place};
use knack_wire::own_files::{is_own_container, is_own_file};

use crate::providers::provider::Api;

/// The request, with the ids of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the APIs")]
pub enum FilesCall {
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
    ContainerFile {
        container: String,
        file: String,
    },
    ContainerFileContent {
        container: String,
        file: String,
    },
    DeleteContainerFile {
        container: String,
        file: String,
    },
    /// A path of the API with a method that it does not have: its methods.
    NotAllowed(&'static str),
    /// A path that the API does not have.
    Unknown,
}

/// The word in `anthropic-beta` that asks for the older shapes.
const BETA: &str = "files-api-2025-04-14";

/// The words of other APIs: the files behind them are those of one object.
const OTHER_APIS: [&str; 4] = ["assistants", "models", "threads", "vector_stores"];

/// The call that a request makes; `None`: it is the provider's. Knack's ids are served here always; uploads, lists and new
/// containers only if they are `kept_here`, and not those of Google's API: its clients upload by paths that are the provider's
/// alone, and expect other shapes of the list.
pub fn route(method: &Method, uri: &Uri, headers: &HeaderMap, kept_here: bool) -> Option<(Dialect, FilesCall)> {
    let path = uri.path();
    let is_word = |segment: &str| matches!(segment, "files" | "containers");
    // Most paths are those of model calls.
    if !path.split('/').any(is_word) {
        return None;
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let name = namespace_place(&segments);
    let is_word = |at: &usize| segments.get(*at).copied().is_some_and(is_word) && name != Some(*at);
    let begins = |at: &usize| {
        at.checked_sub(1)
            .is_none_or(|at| segments.get(at).copied() == Some("v1"))
    };
    // A base path may be such a word, too.
    let words = || (0..segments.len()).filter(is_word);
    let at = words().rfind(begins).or_else(|| words().next())?;
    let (before, rest) = (segments.get(..at)?, segments.get(at + 1..)?);
    let is_own = match (segments.get(at).copied(), rest.first()) {
        (Some("files"), Some(id)) => is_own_file(id),
        (_, Some(id)) => kept_here && is_own_container(id),
        (word, None) => {
            // Google has no containers.
            let is_google = || word == Some("files") && Api::of_request(uri, headers) == Api::Gemini;
            kept_here && (before.last() == Some(&"v1") || is_base_path(before, &OTHER_APIS)) && !is_google()
        }
    };
    if !is_own {
        return None;
    }
    let dialect = Dialect::of(headers, BETA);
    // What a HEAD asks for is that of a GET; the server sends no body.
    let get = Method::GET;
    let method = if *method == Method::HEAD { &get } else { method };
    let word = segments.get(at).copied().unwrap_or_default();
    let call = FilesCall::of(word, method.as_str(), rest).unwrap_or_else(|| {
        let has = |method: &str| FilesCall::of(word, method, rest).is_some();
        allowed_methods(has).map_or(FilesCall::Unknown, FilesCall::NotAllowed)
    });
    Some((dialect, call))
}

impl FilesCall {
    /// What a method does to what follows `files` or `containers`; `None`: the API does not have it.
    fn of(word: &str, method: &str, rest: &[&str]) -> Option<Self> {
        let text = |text: &&str| (*text).to_owned();
        Some(match (word, method, rest) {
            ("files", "POST", []) => Self::Upload,
            ("files", "GET", []) => Self::Files,
            ("files", "GET", [id]) => Self::File(text(id)),
            ("files", "DELETE", [id]) => Self::DeleteFile(text(id)),
            ("files", "GET", [id, "content"]) => Self::Content(text(id)),
            ("containers", "POST", []) => Self::CreateContainer,
            ("containers", "GET", []) => Self::Containers,
            ("containers", "GET", [id]) => Self::Container(text(id)),
            ("containers", "DELETE", [id]) => Self::DeleteContainer(text(id)),
            ("containers", "POST", [id, "files"]) => Self::AddContainerFile(text(id)),
            ("containers", "GET", [id, "files"]) => Self::ContainerFiles(text(id)),
            ("containers", "GET", [id, "files", file]) => Self::ContainerFile {
                container: text(id),
                file: text(file),
            },
            ("containers", "GET", [id, "files", file, "content"]) => Self::ContainerFileContent {
                container: text(id),
                file: text(file),
            },
            ("containers", "DELETE", [id, "files", file]) => Self::DeleteContainerFile {
                container: text(id),
                file: text(file),
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str, kept_here: bool) -> Option<FilesCall> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        route(&method, &path.parse().unwrap(), &HeaderMap::new(), kept_here).map(|(_, call)| call)
    }

    #[test]
    fn the_lists_of_google_s_clients_are_the_providers() {
        let found = |uri: &'static str, header: &'static str| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(header),
                http::HeaderValue::from_static("x"),
            )]);
            route(&Method::GET, &Uri::from_static(uri), &headers, true).map(|(_, call)| call)
        };
        for (uri, header) in [
            ("/v1/files", "x-goog-api-key"),
            ("/v1/files?pageSize=9&key=k", "accept"),
            ("/v1beta/files", "x-goog-api-client"),
            ("/v1/files/abc-123", "x-goog-api-key"),
        ] {
            assert_eq!(found(uri, header), None, "{uri}");
        }
        assert_eq!(found("/v1/files", "authorization"), Some(FilesCall::Files));
        let own = FilesCall::File("file_knack_a".to_owned());
        assert_eq!(found("/v1beta/files/file_knack_a", "x-goog-api-key"), Some(own));
    }

    /// The read and the deletion of one file of one container.
    fn of_container_file() -> (FilesCall, FilesCall) {
        let (container, file) = ("cntr_knack_a".to_owned(), "cfile_knack_b".to_owned());
        let content = FilesCall::ContainerFileContent {
            container: container.clone(),
            file: file.clone(),
        };
        (content, FilesCall::DeleteContainerFile { container, file })
    }

    #[test]
    fn ids_of_ours_are_served_here_and_the_rest_only_by_the_setting() {
        let id = || "file_knack_a".to_owned();
        let one = || "cntr_knack_a".to_owned();
        let (content, deletion) = of_container_file();
        for (method, path, without, with) in [
            ("POST", "/v1/files", None, Some(FilesCall::Upload)),
            ("GET", "/files", None, Some(FilesCall::Files)),
            ("GET", "/gw/v1/files", None, Some(FilesCall::Files)),
            ("GET", "/containers/v1/files", None, Some(FilesCall::Files)),
            ("GET", "/files/v1/containers", None, Some(FilesCall::Containers)),
            ("PUT", "/v1/files", None, Some(FilesCall::NotAllowed("GET, HEAD, POST"))),
            (
                "GET",
                "/v1/files/file_knack_a",
                Some(FilesCall::File(id())),
                Some(FilesCall::File(id())),
            ),
            (
                "GET",
                "/gw/files/file_knack_a/content",
                Some(FilesCall::Content(id())),
                Some(FilesCall::Content(id())),
            ),
            (
                "DELETE",
                "/v1/files/file_knack_a",
                Some(FilesCall::DeleteFile(id())),
                Some(FilesCall::DeleteFile(id())),
            ),
            (
                "GET",
                "/v1/files/file_knack_a/x",
                Some(FilesCall::Unknown),
                Some(FilesCall::Unknown),
            ),
            ("GET", "/v1/files/file-1", None, None),
            ("DELETE", "/v1/files/file_01", None, None),
            ("GET", "/v1beta/files", None, None),
            ("POST", "/upload/v1beta/files", None, None),
            ("POST", "/v1/uploads", None, None),
            ("POST", "/v1/containers", None, Some(FilesCall::CreateContainer)),
            ("GET", "/v1/containers", None, Some(FilesCall::Containers)),
            ("GET", "/v1/containers/cntr_1", None, None),
            ("GET", "/v1/containers/cntr_1/files", None, None),
            (
                "GET",
                "/v1/containers/cntr_knack_a",
                None,
                Some(FilesCall::Container(one())),
            ),
            (
                "POST",
                "/v1/containers/cntr_knack_a",
                None,
                Some(FilesCall::NotAllowed("DELETE, GET, HEAD")),
            ),
            (
                "DELETE",
                "/v1/containers/cntr_knack_a",
                None,
                Some(FilesCall::DeleteContainer(one())),
            ),
            (
                "POST",
                "/v1/containers/cntr_knack_a/files",
                None,
                Some(FilesCall::AddContainerFile(one())),
            ),
            (
                "GET",
                "/v1/containers/cntr_knack_a/files",
                None,
                Some(FilesCall::ContainerFiles(one())),
            ),
            (
                "GET",
                "/v1/containers/cntr_knack_a/files/cfile_knack_b/content",
                None,
                Some(content),
            ),
            (
                "DELETE",
                "/v1/containers/cntr_knack_a/files/cfile_knack_b",
                None,
                Some(deletion),
            ),
        ] {
            assert_eq!(found(method, path, false), without, "{method} {path} without");
            assert_eq!(found(method, path, true), with, "{method} {path} with");
        }
    }

    #[test]
    fn a_base_path_needs_no_v1_and_head_is_get() {
        for (method, path, expected) in [
            ("HEAD", "/v1/files", Some(FilesCall::Files)),
            // A base path without `v1`.
            ("POST", "/gw/files", Some(FilesCall::Upload)),
            ("GET", "/gw/containers", Some(FilesCall::Containers)),
            ("GET", "/namespaces/team/files", Some(FilesCall::Files)),
            ("GET", "/namespaces/files", None),
            ("GET", "/namespaces/files/v1/files", Some(FilesCall::Files)),
            ("GET", "/namespaces/files/files", Some(FilesCall::Files)),
            ("POST", "/namespaces/containers/files", Some(FilesCall::Upload)),
            ("GET", "/gw/namespaces/files/containers", Some(FilesCall::Containers)),
            ("GET", "/namespaces/namespaces/files", Some(FilesCall::Files)),
            ("GET", "/namespaces/models/files", Some(FilesCall::Files)),
            ("GET", "/namespaces/v1-team/files", Some(FilesCall::Files)),
            ("GET", "/namespaces/v1/files", Some(FilesCall::Files)),
            ("GET", "/namespaces/v1beta/files", Some(FilesCall::Files)),
            (
                "GET",
                "/namespaces/files/files/file_knack_a",
                Some(FilesCall::File("file_knack_a".to_owned())),
            ),
            (
                "DELETE",
                "/namespaces/files/containers/cntr_knack_a",
                Some(FilesCall::DeleteContainer("cntr_knack_a".to_owned())),
            ),
            ("GET", "/gw/containers/cntr_1/files", None),
            ("GET", "/gw/vector_stores/vs_1/files", None),
            ("GET", "/v1/vector_stores/vs_1/files", None),
            ("GET", "/gw/models/files", None),
            ("GET", "/gw/v1beta/files", None),
        ] {
            assert_eq!(found(method, path, true), expected, "{method} {path}");
        }
    }
}
