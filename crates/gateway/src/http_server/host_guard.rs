//! Refuses requests that a web page made a browser send: `knack dev` listens on loopback, where every page can reach it.
//!
//! Two checks close the two ways in. A foreign `Host` means that a name that is not of this machine was rebound to 127.0.0.1
//! (DNS rebinding). A foreign `Origin` means that a page of another site sent it. Programs send no `Origin`.

use http::{HeaderMap, Uri};

/// Whether a request may pass: the reason if not.
pub(crate) fn check(headers: &HeaderMap, uri: &Uri) -> Result<(), &'static str> {
    let host = match headers.get(http::header::HOST) {
        Some(value) => value.to_str().map_err(|_| "the Host header is not text")?,
        None => uri.authority().map_or("", http::uri::Authority::as_str),
    };
    if !is_local(host) {
        return Err("the Host header is not a loopback name; call this gateway by localhost or 127.0.0.1");
    }
    if let Some(origin) = headers.get(http::header::ORIGIN) {
        let origin = origin.to_str().map_err(|_| "the Origin header is not text")?;
        let local = origin
            .split_once("://")
            .is_some_and(|(_, authority)| is_local(authority));
        if !local {
            return Err("web pages of other origins may not call this gateway");
        }
    }
    // Browsers mark what a page of another site caused, with or without an Origin (an <img>, a form, no-cors fetch).
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return Err("web pages of other origins may not call this gateway");
    }
    Ok(())
}

/// `localhost`, `*.localhost`, 127.0.0.0/8 or `[::1]`, with or without a port.
pub fn is_local(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if port.is_empty() || port.starts_with(':') => host,
            _ => return false,
        },
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    let host = host.trim_end_matches('.');
    let last_label = host.rsplit('.').next().unwrap_or_default();
    last_label.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_headers(headers: &[(&'static str, &'static str)]) -> bool {
        let map = headers
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    http::HeaderValue::from_static(value),
                )
            })
            .collect();
        check(&map, &Uri::from_static("/v1/messages")).is_ok()
    }

    #[test]
    fn local_programs_pass_and_web_pages_do_not() {
        for (headers, passes) in [
            (&[("host", "127.0.0.1:8080")][..], true),
            (&[("host", "localhost")], true),
            (&[("host", "[::1]:9")], true),
            (&[("host", "app.localhost:1")], true),
            (&[("host", "App.LOCALHOST.:1")], true),
            (&[("host", "notlocalhost")], false),
            (&[("host", "evil.example")], false),
            (&[("host", "127.0.0.1.evil.example")], false),
            (&[("host", "localhost.evil.example")], false),
            (&[("host", "0.0.0.0:8080")], false),
            (&[], false),
            (&[("host", "localhost"), ("origin", "http://localhost:3000")], true),
            (&[("host", "localhost"), ("origin", "https://evil.example")], false),
            (&[("host", "localhost"), ("origin", "null")], false),
            (&[("host", "localhost"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "localhost"), ("sec-fetch-site", "same-origin")], true),
        ] {
            assert_eq!(check_headers(headers), passes, "{headers:?}");
        }
    }
}
