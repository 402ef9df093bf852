//! Arguments of declared tools against their JSON Schema: the one check of gateway, hub and command line.

mod cost;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

/// Errors that are reported; more would bury the schema that follows them.
const MAX_ERRORS: usize = 5;
/// Steps back of a pattern with look-around or back-references, about a millisecond. Patterns are the skill author's,
/// values the model's: together they must not hold a thread.
const PATTERN_BACKTRACKS: usize = 20_000;
/// Bytes of a compiled pattern, and of the states that matching it makes.
const PATTERN_BYTES: usize = 1 << 20;

/// Checks arguments against a schema. The error is one line for the model.
///
/// A schema that does not compile was reported when the skill was loaded; it binds nothing here.
pub fn validate(schema: &Value, arguments: &Value) -> Result<(), String> {
    cost::check(schema, arguments).map_err(|why| format!("the schema cannot be checked in bounded time: {why}"))?;
    let Some(validator) = compile(schema) else {
        return Ok(());
    };
    let errors: Vec<String> = validator
        .iter_errors(arguments)
        .take(MAX_ERRORS)
        .map(|error| {
            let path = error.instance_path().to_string();
            if path.is_empty() {
                error.to_string()
            } else {
                format!("{path}: {error}")
            }
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors.join("; "))
    }
}

fn compile(schema: &Value) -> Option<Validator> {
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(PATTERN_BACKTRACKS)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES);
    let options = jsonschema::options().with_pattern_options(patterns);
    // Schemas written before the draft 2020-12 may have a list under `items`, and seldom say of which draft they are.
    let present = options.build(schema);
    present
        .or_else(|_| options.with_draft(Draft::Draft7).build(schema))
        .ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    #[test]
    fn mismatches_name_the_member() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        assert!(validate(&schema, &json!({"n": 1})).is_ok());
        assert!(validate(&schema, &json!({"n": "x"})).unwrap_err().starts_with("/n: "));
        assert!(validate(&schema, &json!({})).unwrap_err().contains("\"n\""));
        assert!(validate(&json!({"$ref": "http://127.0.0.1:9/x"}), &json!({})).is_ok());
    }

    /// A list of schemas under `items` is none for the present draft, and nothing was checked with it.
    #[test]
    fn a_schema_of_an_older_draft_is_checked_by_its_rules() {
        let pair =
            json!({"type": "array", "items": [{"type": "string"}, {"$ref": "#/$defs/N"}], "additionalItems": false});
        let schema = json!({"type": "object", "properties": {"pair": pair, "n": {"type": "integer"}}, "$defs": {"N": {"type": "integer"}},
            "anyOf": [{"required": ["n"]}, {"required": ["pair"]}]});
        for (arguments, fault) in [
            (json!({"n": 1, "pair": ["a", 1]}), None),
            (json!({"n": "x"}), Some("/n: ")),
            (json!({"pair": ["a", "b"]}), Some("/pair/1: ")),
            (json!({"pair": ["a", 1, 2]}), Some("/pair: ")),
            (json!({}), Some("anyOf")),
        ] {
            let checked = validate(&schema, &arguments).err();
            assert_eq!(checked.is_some(), fault.is_some(), "{arguments}: {checked:?}");
            assert!(
                checked.unwrap_or_default().contains(fault.unwrap_or_default()),
                "{arguments}"
            );
        }
    }

    #[test]
    fn a_schema_that_multiplies_is_an_error_soon() {
        let half = json!({"$ref": "#/$defs/a"});
        let schema =
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": {"anyOf": [half.clone(), half]}}}}});
        let deep = (0..60).fold(json!(1), |inner, _| json!({"x": inner}));
        assert!(validate(&schema, &deep).unwrap_err().contains("bounded time"));
        assert!(validate(&schema, &json!({"x": {"x": 1}})).is_ok());
    }

    #[test]
    fn a_pattern_that_backtracks_for_ever_is_an_error_soon() {
        let schema = json!({"properties": {"x": {"type": "string", "pattern": "^(?=(a+)+$)(a|aa)+\\1b$"}}});
        let begun = Instant::now();
        let refused = validate(&schema, &json!({"x": "a".repeat(2_000)})).unwrap_err();
        assert!(refused.starts_with("/x: "), "{refused}");
        // By a wide margin: without the limit it is minutes.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
