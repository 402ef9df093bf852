//! The methods of a path.

/// The header `Allow` of a path that has those methods for which `has` is true; `None`: it has none of them. The answer to a HEAD is
/// that to a GET without its body.
pub fn allowed_methods(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    Some(match (has("DELETE"), has("GET"), has("POST")) {
        (true, true, true) => "DELETE, GET, HEAD, POST",
        (true, true, false) => "DELETE, GET, HEAD",
        (true, false, true) => "DELETE, POST",
        (true, false, false) => "DELETE",
        (false, true, true) => "GET, HEAD, POST",
        (false, true, false) => "GET, HEAD",
        (false, false, true) => "POST",
        (false, false, false) => return None,
    })
}
