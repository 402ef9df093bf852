//! Argument vectors: the first line is a list of tool declarations, the second the model's arguments.
#![no_main]

use knack_fuzz::fields;
use knack_skill::{argv, model::Tool, tools};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(parts) = fields(data, 2) else { return };
    let (Ok(declared), Ok(arguments)) = (serde_json::from_str(parts[0]), serde_json::from_str(parts[1])) else { return };
    let (declared, _) = tools::read(&declared);
    for one in declared {
        // By the parameters alone, whatever the schema says.
        let tool = Tool { input_schema: serde_json::Value::Null, ..Tool::from(one) };
        let length = tool.command.len();
        if let Ok(argv) = argv::build(&tool, &arguments) {
            assert_eq!(argv[..length], tool.command);
            // A value never becomes a flag.
            for pair in argv[length..].windows(2).filter(|pair| pair[0].starts_with("--")) {
                assert!(!pair[1].starts_with('-'), "{argv:?}");
            }
        }
    }
});
