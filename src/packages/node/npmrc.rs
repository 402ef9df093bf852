//! Credentials of an index, as npm's settings have them. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::HeaderValue;

/// The header for an index, of the settings for the longest address above it: `//host/path/:_authToken=…`, else
/// `_auth`, else `username` and `_password`. Other settings have no effect.
///
/// Errors: there is no credential that can be used; the text holds none.
pub(super) fn authorization(text: &str, index: &Url) -> Result<HeaderValue, String> {
    let port = index.port().map(|port| format!(":{port}")).unwrap_or_default();
    let address = format!("//{}{port}{}", index.host_str().unwrap_or_default(), index.path());
    // By address, names with values.
    let mut known: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        let Some((of, name)) = key.rsplit_once(':') else {
            continue;
        };
        if of.starts_with("//") && of.ends_with('/') && address.starts_with(of) && !value.is_empty() {
            known.entry(of).or_default().insert(name, value);
        }
    }
    // All begin the same address, so the last one is the longest.
    let header = known.values().rev().find_map(header);
    let header = header.ok_or_else(|| {
        format!("no credential for {address}: write a line {address}:_authToken=…, {address}:_auth=…, or username and _password")
    })?;
    if header.contains("${") {
        return Err(format!(
            "the credential for {address} refers to a variable; variables are not expanded"
        ));
    }
    let mut header = HeaderValue::from_str(&header).map_err(|_| {
        format!("the credential for {address} contains characters that are not allowed in an HTTP header")
    })?;
    header.set_sensitive(true);
    Ok(header)
}

/// The header of the settings of one address.
fn header(settings: &BTreeMap<&str, &str>) -> Option<String> {
    let setting = |name: &str| settings.get(name).copied();
    let password = || {
        // npm keeps it in Base64.
        let password = STANDARD.decode(setting("_password")?).ok()?;
        let whole = [setting("username")?.as_bytes(), b":", &password].concat();
        Some(format!("Basic {}", STANDARD.encode(whole)))
    };
    let token = setting("_authToken").map(|token| format!("Bearer {token}"));
    token
        .or_else(|| setting("_auth").map(|auth| format!("Basic {auth}")))
        .or_else(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credential_is_that_of_the_longest_address_above_the_index() {
        let index = Url::parse("https://mirror.example:8443/npm/team/").unwrap();
        for (text, expected) in [
            ("//mirror.example:8443/npm/:_authToken=t0k\n", Some("Bearer t0k")),
            (
                "registry=https://x\n//mirror.example:8443/:_authToken=a\n//mirror.example:8443/npm/team/:_auth = \"dTpw\"\n",
                Some("Basic dTpw"),
            ),
            (
                "//mirror.example:8443/:username=me\n//mirror.example:8443/:_password=c2VjcmV0\n",
                Some("Basic bWU6c2VjcmV0"),
            ),
            // Neither another port, nor a host or a folder that begins the same, nor what is for every index.
            ("//mirror.example/:_authToken=secret", None),
            ("//mirror.example:8443/npm/te:_authToken=secret", None),
            ("//mirror.example:8443/npm/other/:_authToken=secret", None),
            ("_authToken=secret", None),
            ("//mirror.example:8443/:_authToken=${SECRET}", None),
            ("//mirror.example:8443/:_authToken=sec\u{1}ret", None),
            ("", None),
        ] {
            match (authorization(text, &index), expected) {
                (Ok(header), Some(expected)) => {
                    assert_eq!(header.to_str().unwrap(), expected, "{text}");
                    assert!(!format!("{header:?}").contains("t0k"));
                }
                (Err(error), None) => {
                    let is_told = error.contains("//mirror.example:8443/npm/team/") && !error.contains("secret");
                    assert!(is_told, "{text}: {error}");
                }
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
    }
}
