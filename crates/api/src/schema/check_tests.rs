//! Objects that an API server takes and refuses, as files: the same ones that the tests of the definitions show to an API server
//! (`tests/cluster_operator/definitions.rs`).

use crate::parse_manifests;

use super::patterns::{PATTERNS, pattern_words};
use super::rules::Check;
use super::*;

fn documents(file: &str) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cluster_operator/crds");
    let text = std::fs::read_to_string(path.join(file)).unwrap();
    text.split("\n---\n").map(filled).collect()
}

/// `{{repeat <text> <count>}}` written out.
fn filled(text: &str) -> String {
    let repeat = regex::Regex::new(r"\{\{repeat (\S+) (\d+)\}\}").unwrap();
    let written = |found: &regex::Captures<'_>| found[1].repeat(found[2].parse().unwrap());
    repeat.replace_all(text, written).into_owned()
}

#[test]
fn what_an_api_server_takes_is_taken_from_files() {
    for document in documents("accepted.yaml") {
        let read = parse_manifests(&document);
        assert!(read.len() == 1 && read[0].is_ok(), "{:?}", read[0].as_ref().err());
    }
}

#[test]
fn what_an_api_server_refuses_is_refused_in_files_with_its_message() {
    let mut wrong = Vec::new();
    for document in documents("refused.yaml") {
        let expected = document
            .lines()
            .find_map(|line| line.strip_prefix("# expect: "))
            .unwrap();
        // Problems that no rule reports have the API server's own words; the field is the same.
        let own = [
            ": Required value",
            ": Unsupported value",
            "unknown field \"",
            "Duplicate value",
        ];
        let own = own.iter().find(|own| expected.contains(**own));
        let expected = own.map_or(expected.to_owned(), |own| match *own {
            "Duplicate value" => "an earlier item has name".to_owned(),
            own => expected.replace(own, "").trim_end_matches('"').to_owned(),
        });
        match &parse_manifests(&document)[..] {
            [Err(error)] if error.message.contains(&expected) => {}
            [Err(error)] => wrong.push(format!("{error} should contain {expected:?}")),
            _ => wrong.push(format!(
                "{} should be refused",
                document.lines().take(4).collect::<String>()
            )),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_can_be_checked_in_files_and_every_expression_compiles() {
    for rule in RULES {
        match rule.check() {
            Some(Check::Matches(regex) | Check::MatchesNot(regex) | Check::KeysMatch(regex)) => {
                // CEL reads a backslash as an escape in its own text.
                assert!(!regex.contains('\\'), "{regex}");
                regex::Regex::new(regex).unwrap();
            }
            Some(Check::Of(_) | Check::Keys(_) | Check::KeysOf(..)) => {}
            None => panic!("{} {}: {}", rule.kind, rule.at, rule.rule),
        }
    }
    for pattern in PATTERNS {
        regex::Regex::new(pattern.regex).unwrap();
        assert!(
            !pattern_words(pattern.regex).contains("must match"),
            "{}",
            pattern.regex
        );
    }
}

#[test]
fn the_urls_of_files_are_those_that_an_api_server_takes() {
    use super::predicates::is_http_url;
    for url in [
        "https://a",
        "http://127.0.0.1:1/v1",
        "HTTPS://h",
        "http://[::1]:80/x",
        "https://u:p@h/",
    ] {
        assert!(is_http_url(url), "{url}");
    }
    for url in [
        "",
        "x",
        "h:1",
        "//h",
        "ftp://h",
        "https://",
        "https:///v1",
        "http://:80",
        "http://h:x/",
        "http://a b/",
    ] {
        assert!(!is_http_url(url), "{url}");
    }
}
