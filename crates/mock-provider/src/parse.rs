//! Scripts from YAML.

use super::script::{Script, ScriptError};

/// The script that runs when none is given.
const BUILT_IN: &str = include_str!("default.yaml");

impl Script {
    /// Reads a script from YAML.
    ///
    /// Errors: [`ScriptError::Shape`] for wrong YAML, unknown fields and wrong types; [`ScriptError::Meaning`] for
    /// contradictions, such as a call with both `arguments` and `raw_arguments`.
    pub fn parse(yaml: &str) -> Result<Self, ScriptError> {
        let script: Self = serde_saphyr::from_str(yaml).map_err(|error| {
            let (line, column) = error
                .location()
                .map_or((0, 0), |location| (location.line(), location.column()));
            ScriptError::Shape {
                line,
                column,
                message: first_line(&error.without_snippet().to_string()),
            }
        })?;
        super::script_check::check(&script)?;
        Ok(script)
    }

    /// The script that runs when none is given: it names the tools it was offered and loads one skill.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the text is part of the program and a test parses it"
    )]
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("the built-in script is constant and parsed by a test")
    }
}

fn first_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or("not readable")
        .trim_end_matches('.')
        .to_owned()
}
