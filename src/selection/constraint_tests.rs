//! Constraints of a runtime: what the definition refuses, and what the code reads.

use knack_api::schema::RULES;
use knack_packages::Rules;
use regex::Regex;

/// Whether the definition takes a constraint.
fn is_taken(text: &str) -> bool {
    let mut rules = RULES.iter().filter(|rule| rule.at == "spec.packages.constraints[]");
    rules.all(|rule| {
        let (pattern, wanted) = match rule.rule.strip_prefix('!') {
            Some(pattern) => (pattern, false),
            None => (rule.rule, true),
        };
        let pattern = pattern.strip_prefix("self.matches('").unwrap().strip_suffix("')");
        Regex::new(pattern.unwrap()).unwrap().is_match(text) == wanted
    })
}

#[test]
fn the_definition_refuses_clauses_that_no_version_can_be_compared_with() {
    let is_read = |text: &str| Rules::read(&[text.to_owned()], false).is_ok();
    for text in [
        "mcp~=1",
        "mcp ~= 1",
        "mcp~=v1,<3",
        "mcp<3,~=1",
        "mcp~=10",
        "mcp~=1!2",
        "mcp~=1rc1",
        "mcp~=1.dev0",
        "mcp~=1.*",
        "mcp~=1.2.*",
        "mcp~=1; python_version < '3.12'",
        "mcp>=1.*",
        "mcp<1.2.*",
        "mcp>1+local",
        "mcp~=1.2+local",
        "mcp<=2,>=1+x",
        // No versions.
        "mcp>=1abc",
        "mcp<2,>=1x",
        "mcp~=1.",
        "mcp==1..2",
        "mcp>=1.0rc1x",
        "mcp>=2004d",
        "mcp==1!",
        "mcp==1+",
        "mcp==1+a..b",
        "mcp>=1.0-",
        "mcp>=1.0post1a1",
        "mcp==1abc.*",
    ] {
        assert!(!is_read(text), "{text} is read");
        assert!(!is_taken(text), "{text} is taken");
    }
    for text in [
        "mcp~=1.4",
        "mcp ~= v1.4, <3",
        "mcp~=10.0",
        "mcp~=1!2.3",
        "mcp~=1.4rc1",
        "mcp~=1.4.dev0",
        "mcp==1.*",
        "mcp!=1.2.*,<2",
        "mcp==1+local",
        "mcp!=1+local,>=0",
        "mcp===1+local",
        "mcp===2004d",
        "mcp>=1.0alpha1,<1.0-RC-1",
        "mcp==1.0c1",
        "mcp>1.0preview",
        "mcp>=1.0-1",
        "mcp>=1.0_r_1",
        "mcp<1.0.DEV",
        "mcp>=1.0b2.post345.dev456",
        "mcp<1!0.1rev.3-dev_4",
        "mcp==1.0+A-b.5_c",
        "mcp==01.02",
        "mcp<2; python_full_version ~= '3'",
        "mcp<2; os_name == '>=1.*'",
    ] {
        assert!(is_read(text), "{text} is not read");
        assert!(is_taken(text), "{text} is not taken");
    }
    // What the definition leaves to the condition of the SkillRuntime: a number that is larger than any in use.
    let text = "mcp>=99999999999999999999";
    assert!(!is_read(text) && is_taken(text), "{text}");
}
