//! The words of the stream as the values of a catalog, and back.

use knack_skill::SpecOverrides;
use knack_skill::model::{ActivationMode, Input, InputKind, Parameter, SandboxRequest};
use knack_skill::risk::Risk;
use knack_skill::schema_text::SchemaText;
use knack_skill::tools::ToolDeclaration;

use crate::{ActivationName, InputLine, Overrides, ParameterLine, RiskName, SandboxLine, ToolLine};

/// Writes the fields that a spec sets in wire form.
pub fn overrides_to_line(overrides: &SpecOverrides) -> Overrides {
    Overrides {
        version: overrides.version.clone(),
        activation: overrides.activation.map(activation_to_name),
        tags: overrides.tags.clone(),
        tools: overrides
            .tools
            .as_ref()
            .map(|tools| tools.iter().map(tool_to_line).collect()),
        inputs: overrides
            .inputs
            .as_ref()
            .map(|inputs| inputs.iter().map(input_to_line).collect()),
        ids: overrides.ids.clone(),
        sandbox: overrides.sandbox.as_ref().map(|sandbox| SandboxLine {
            image: sandbox.image.clone(),
            image_name: sandbox.image_name.clone(),
            timeout_seconds: sandbox.timeout_seconds,
            max_output_bytes: sandbox.max_output_bytes,
            memory_bytes: sandbox.memory_bytes,
        }),
    }
}

/// Reads the fields that a spec sets from their wire form.
pub fn overrides_from_line(line: &Overrides) -> SpecOverrides {
    SpecOverrides {
        version: line.version.clone(),
        activation: line.activation.map(activation_from_name),
        tags: line.tags.clone(),
        tools: line
            .tools
            .as_ref()
            .map(|tools| tools.iter().map(tool_from_line).collect()),
        inputs: line
            .inputs
            .as_ref()
            .map(|inputs| inputs.iter().map(input_from_line).collect()),
        ids: line.ids.clone(),
        sandbox: line.sandbox.as_ref().map(|sandbox| SandboxRequest {
            image: sandbox.image.clone(),
            image_name: sandbox.image_name.clone(),
            timeout_seconds: sandbox.timeout_seconds,
            max_output_bytes: sandbox.max_output_bytes,
            memory_bytes: sandbox.memory_bytes,
        }),
        // The executor knows them; a gateway installs nothing.
        packages: None,
    }
}

/// The word of a mode.
pub const fn activation_to_name(mode: ActivationMode) -> ActivationName {
    match mode {
        ActivationMode::Never => ActivationName::Never,
        ActivationMode::OnRequest => ActivationName::OnRequest,
        ActivationMode::Listed => ActivationName::Listed,
        ActivationMode::Auto => ActivationName::Auto,
        ActivationMode::Always => ActivationName::Always,
    }
}

/// Parses the name of a mode.
pub const fn activation_from_name(name: ActivationName) -> ActivationMode {
    match name {
        ActivationName::Never => ActivationMode::Never,
        ActivationName::OnRequest => ActivationMode::OnRequest,
        ActivationName::Listed => ActivationMode::Listed,
        ActivationName::Auto => ActivationMode::Auto,
        ActivationName::Always => ActivationMode::Always,
    }
}

/// The word of a level.
pub const fn risk_to_name(risk: Risk) -> RiskName {
    match risk {
        Risk::Safe => RiskName::Safe,
        Risk::Moderate => RiskName::Moderate,
        Risk::Dangerous => RiskName::Dangerous,
        Risk::Critical => RiskName::Critical,
    }
}

/// Parses the name of a limit.
pub fn limit_from_name(name: RiskName) -> Risk {
    known(name).unwrap_or(Risk::Safe)
}

const fn known(name: RiskName) -> Option<Risk> {
    match name {
        RiskName::Safe => Some(Risk::Safe),
        RiskName::Moderate => Some(Risk::Moderate),
        RiskName::Dangerous => Some(Risk::Dangerous),
        RiskName::Critical => Some(Risk::Critical),
        RiskName::Unknown => None,
    }
}

fn tool_to_line(tool: &ToolDeclaration) -> ToolLine {
    ToolLine {
        name: tool.name.clone(),
        description: tool.description.clone(),
        command: tool.command.clone(),
        input_schema: tool.input_schema.as_ref().map(SchemaText::from),
        parameters: tool
            .parameters
            .iter()
            .map(|parameter| ParameterLine {
                name: parameter.name.clone(),
                description: parameter.description.clone(),
                required: parameter.required,
            })
            .collect(),
        env: tool.env.clone(),
        hidden: tool.hidden,
        risk: tool.risk.map(risk_to_name),
        python: tool.python.clone(),
    }
}

fn tool_from_line(line: &ToolLine) -> ToolDeclaration {
    ToolDeclaration {
        name: line.name.clone(),
        description: line.description.clone(),
        command: line.command.clone(),
        parameters: line
            .parameters
            .iter()
            .map(|parameter| Parameter {
                name: parameter.name.clone(),
                description: parameter.description.clone(),
                required: parameter.required,
            })
            .collect(),
        input_schema: line.input_schema.as_ref().map(SchemaText::value),
        env: line.env.clone(),
        hidden: line.hidden,
        risk: line.risk.map(|name| known(name).unwrap_or(Risk::Critical)),
        python: line.python.clone(),
        ..ToolDeclaration::default()
    }
}

fn input_to_line(input: &Input) -> InputLine {
    InputLine {
        name: input.name.clone(),
        label: input.label.clone(),
        textarea: input.kind == InputKind::Textarea,
        required: input.required,
        default: input.default.clone(),
        description: input.description.clone(),
    }
}

fn input_from_line(line: &InputLine) -> Input {
    Input {
        name: line.name.clone(),
        label: if line.label.is_empty() {
            line.name.clone()
        } else {
            line.label.clone()
        },
        kind: if line.textarea {
            InputKind::Textarea
        } else {
            InputKind::Text
        },
        required: line.required,
        default: line.default.clone(),
        description: line.description.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spec_sets_comes_back_as_it_was() {
        let overrides = SpecOverrides {
            version: Some("1.2.3".to_owned()),
            activation: Some(ActivationMode::Auto),
            tags: Some(vec!["t".to_owned()]),
            tools: Some(vec![
                ToolDeclaration {
                    python: Some("tools.py".to_owned()),
                    ..ToolDeclaration::default()
                },
                ToolDeclaration {
                    name: "t".to_owned(),
                    description: "d".to_owned(),
                    command: vec!["python3".to_owned()],
                    parameters: vec![Parameter {
                        name: "p".to_owned(),
                        description: String::new(),
                        required: true,
                    }],
                    input_schema: Some(serde_json::json!({"type": "object"})),
                    env: vec!["E".to_owned()],
                    hidden: true,
                    risk: Some(Risk::Dangerous),
                    ..ToolDeclaration::default()
                },
            ]),
            inputs: Some(vec![Input {
                name: "i".to_owned(),
                label: "I".to_owned(),
                kind: InputKind::Textarea,
                required: true,
                default: Some("x".to_owned()),
                description: None,
            }]),
            ids: Some(vec!["skill_abc".to_owned()]),
            sandbox: Some(SandboxRequest {
                image: Some("img".to_owned()),
                image_name: Some("office".to_owned()),
                timeout_seconds: Some(3),
                max_output_bytes: None,
                memory_bytes: Some(5),
            }),
            packages: None,
        };
        for overrides in [overrides, SpecOverrides::default()] {
            let json = serde_json::to_string(&overrides_to_line(&overrides)).unwrap();
            assert_eq!(overrides_from_line(&serde_json::from_str(&json).unwrap()), overrides);
        }
    }

    #[test]
    fn every_level_has_its_word_and_an_unknown_one_lifts_no_limit() {
        for risk in Risk::ALL {
            let name = risk_to_name(risk);
            assert_eq!(serde_json::to_value(name).unwrap(), risk.as_str());
            assert_eq!(limit_from_name(name), risk);
        }
        let unknown: RiskName = serde_json::from_str("\"Apocalyptic\"").unwrap();
        assert_eq!(limit_from_name(unknown), Risk::Safe);
        let line = ToolLine {
            risk: Some(unknown),
            ..ToolLine::default()
        };
        assert_eq!(tool_from_line(&line).risk, Some(Risk::Critical));
    }

    #[test]
    fn every_mode_has_its_word() {
        for mode in [
            ActivationMode::Never,
            ActivationMode::OnRequest,
            ActivationMode::Listed,
            ActivationMode::Auto,
            ActivationMode::Always,
        ] {
            let name = activation_to_name(mode);
            assert_eq!(serde_json::to_value(name).unwrap(), mode.as_str());
            assert_eq!(activation_from_name(name), mode);
        }
    }
}
