//! Why there is no environment.

use std::fmt;

use knack_packages::State;
use knack_trust::CertificateRefusal;

/// Longest part of an installer's words that is shown.
const MAX_OUTPUT: usize = 1500;

/// How uv (rustls) and npm (OpenSSL) call a certificate of an authority that they do not trust.
const UNTRUSTED: [&str; 6] = [
    "invalid peer certificate: UnknownIssuer",
    "invalid peer certificate: BadSignature",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "DEPTH_ZERO_SELF_SIGNED_CERT",
];

/// A state that is not `Ready`, with its reason for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    /// The state.
    pub state: State,
    /// The problem and what to do.
    pub text: String,
}

impl BuildError {
    /// A state with its reason.
    pub fn new(state: State, text: impl Into<String>) -> Self {
        Self {
            state,
            text: text.into(),
        }
    }

    /// The error of `uv`'s output, without possible credentials.
    pub(super) fn of_uv(output: &str) -> Self {
        // Warnings come first, and are of what did not fail.
        let error = output
            .lines()
            .skip_while(|line| line.starts_with("warning:"))
            .collect::<Vec<_>>()
            .join("\n");
        Self::of_program(if error.is_empty() { output } else { &error }, State::of_uv)
    }

    /// The error of npm's output, without possible credentials.
    pub(super) fn of_npm(output: &str) -> Self {
        Self::of_program(output, |output| {
            let has = |words: &[&str]| words.iter().any(|word| output.contains(word));
            if has(&["E404", "ETARGET", "ENOVERSIONS"]) {
                State::PackageNotFound
            } else if has(&["ERESOLVE"]) {
                State::Conflict
            } else if has(&["ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN"]) {
                State::IndexUnreachable
            } else {
                State::Failed
            }
        })
    }

    fn of_program(output: &str, state: impl Fn(&str) -> State) -> Self {
        let output = without_credentials(output.trim());
        let shown = &output[..output.floor_char_boundary(MAX_OUTPUT)];
        if UNTRUSTED.iter().any(|word| output.contains(word)) {
            // First what to do: statuses of a cluster are short.
            let text = format!("the index's certificate {}\n{shown}", CertificateRefusal::Untrusted);
            return Self::new(State::IndexUnreachable, text);
        }
        Self::new(state(&output), shown)
    }

    /// A file or folder of the store that cannot be used.
    pub(super) fn of_disk(what: &str, error: &std::io::Error) -> Self {
        let state = match error.kind() {
            // A full disk is that of the machine, and has room another time: a builder's own volumes are watched by the kubelet.
            std::io::ErrorKind::QuotaExceeded => State::TooLarge,
            _ => State::Failed,
        };
        Self::new(state, format!("{what}: {error}"))
    }
}

impl fmt::Display for BuildError {
    /// `NoWheel: reason`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.state, self.text)
    }
}

impl std::error::Error for BuildError {}

/// Removes the part between `//` and `@` of addresses.
fn without_credentials(text: &str) -> String {
    let mut parts = text.split("//");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let host_end = part
            .find(|letter: char| letter == '/' || letter.is_whitespace())
            .unwrap_or(part.len());
        let start = part[..host_end].rfind('@').map_or(0, |at| at + 1);
        shown.push_str("//");
        shown.push_str(&part[start..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_npm_become_states() {
        for (output, state) in [
            (
                "npm error code E404\nnpm error 404 Not Found - GET https://r/x",
                State::PackageNotFound,
            ),
            (
                "npm error code ETARGET\nnpm error notarget No matching version",
                State::PackageNotFound,
            ),
            ("npm error code ERESOLVE", State::Conflict),
            ("npm error code ECONNREFUSED", State::IndexUnreachable),
            ("npm error code SELF_SIGNED_CERT_IN_CHAIN", State::IndexUnreachable),
            ("npm error code EUNKNOWN https://me:secret@r/x", State::Failed),
        ] {
            let error = BuildError::of_npm(output);
            assert_eq!(error.state, state, "{output}");
            assert!(!error.text.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_authority_that_an_installer_does_not_trust_is_named_as_the_cause() {
        let output = "error: Failed to fetch: `https://mirror.example/simple/a/`\n  cause: invalid peer certificate: UnknownIssuer";
        for error in [
            BuildError::of_uv(output),
            BuildError::of_npm("npm error code UNABLE_TO_GET_ISSUER_CERT_LOCALLY"),
        ] {
            assert_eq!(error.state, State::IndexUnreachable);
            assert!(
                error
                    .text
                    .starts_with("the index's certificate is signed by an authority"),
                "{error}"
            );
            assert!(error.text.contains("--ca-file"), "{error}");
        }
    }

    #[test]
    fn credentials_of_an_index_are_not_shown() {
        let output =
            "error: Failed to fetch: `https://me:secret@mirror.example/simple/a/`\n cause: https://tok@x dns error //";
        let error = BuildError::of_uv(output);
        assert_eq!(error.state, State::IndexUnreachable);
        assert_eq!(
            error.text,
            "error: Failed to fetch: `https://mirror.example/simple/a/`\n cause: https://x dns error //"
        );
    }
}
