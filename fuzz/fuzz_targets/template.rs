//! Templates: the first line is an input's name, the second its value, the rest the body.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use knack_fuzz::fields;
use knack_skill::inputs;
use knack_skill::template;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(parts) = fields(data, 3) else { return };
    let [name, value, body] = parts[..] else { return };
    let (declared, _) = inputs::read(&serde_json::json!([{"name": name, "default": value}]));
    let given = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let value_of = |name: &str| given.get(name).map(String::as_str);
    let bytes = template::filled_bytes(body, &declared, value_of);
    match template::substitute(body, &declared, value_of) {
        Ok(filled) => assert_eq!(filled.len(), bytes),
        Err(refused) => assert_eq!(refused.bytes, bytes),
    }
    let _ = template::validate_inputs(&declared, &given);
    template::undeclared(body, &BTreeSet::from([name]));
});
