//! What a provider's refusal says of the tools and the system text of a request.

use memchr::memmem;

use crate::json;
use crate::request::{Request, RequestFields};

/// Words by which a refusal names tools.
const TOOLS: [&str; 2] = ["tool", "function"];
/// Words by which a refusal names the demand for an answer of a form.
const FORM: [&str; 9] = [
    "response_format",
    "response format",
    "response mime type",
    "response_mime_type",
    "json mode",
    "json_schema",
    "structured output",
    "text.format",
    "output_format",
];
/// Words of a refusal of all tools: of Ollama, Bedrock, OpenRouter, vLLM, llama.cpp, OpenAI and Gemini, and the ones that
/// others have.
const NONE: [&str; 14] = [
    "not support tool",
    "n't support tool",
    "not support function",
    "endpoints found that support tool",
    "--enable-auto-tool-choice",
    "tools param requires --jinja",
    "'tools' is not supported",
    "`tools` is not supported",
    "tools is not supported",
    "function calling is not enabled",
    "function calling is not supported",
    "tool calling is not supported",
    "tool use is not supported",
    "tools are not supported",
];
/// Words of LiteLLM's refusal of parameters, and of the one that has tools in its list.
const PARAMETERS: [&str; 2] = ["not support parameters: [", "'tools'"];
/// Words of a refusal of every system text: of Gemini, OpenAI, and of templates of models that others serve.
const TEXT: [&str; 3] = [
    "developer instruction is not enabled",
    "does not support 'system'",
    "system role not supported",
];
/// Words of a refusal of so many tools: OpenAI's, whose limit is 128.
const MANY: [&str; 2] = ["array_above_max_length", "array too long"];

/// Whether a refusal is about tools, and about nothing that the client could mend, since it sent none, or fewer: the model takes
/// no tools, none beside the form of the answer that the client demands, or not so many. Providers have no common code for any
/// of it, so its words decide.
pub(super) fn is_of_our_tools(refusal: &[u8], fields: &RequestFields) -> bool {
    let words = Words::of(refusal);
    if words.say(&MANY) {
        return words.say(&TOOLS);
    }
    let takes_none = || {
        words.say(&NONE)
            || PARAMETERS.iter().all(|word| words.say(&[word]))
            || is_unsupported_parameter(refusal, "tools")
    };
    !fields.has_client_tools() && (takes_none() || (fields.structured && words.say(&TOOLS) && words.say(&FORM)))
}

/// Whether a refusal is about the system text, of which the client sent none: the model takes none.
pub(super) fn is_of_our_text(refusal: &[u8], request: &Request) -> bool {
    let is_system = |role: &str| matches!(role, "system" | "developer");
    Words::of(refusal).say(&TEXT) && !request.messages().iter().any(|message| is_system(&message.role))
}

/// Whether an error of OpenAI's form says by its members that a parameter is not supported.
fn is_unsupported_parameter(refusal: &[u8], name: &str) -> bool {
    let text = |key| {
        let member = json::path(refusal, json::document(refusal).ok()?, &["error", key])?;
        json::text(refusal, member)
    };
    text("param").as_deref() == Some(name) && text("code").is_some_and(|code| code.starts_with("unsupported"))
}

/// The words of a refusal, in lower case.
struct Words(Vec<u8>);

impl Words {
    fn of(refusal: &[u8]) -> Self {
        Self(refusal.to_ascii_lowercase())
    }

    /// Whether it has one of these.
    fn say(&self, words: &[&str]) -> bool {
        words
            .iter()
            .any(|word| memmem::find(&self.0, word.as_bytes()).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{CallKind, Format, ModelRoute};

    #[test]
    fn a_refusal_is_about_our_tools_or_about_something_else() {
        let fields = |structured, tools: &[&str]| RequestFields {
            structured,
            client_tools: tools.iter().map(|&tool| tool.to_owned()).collect(),
            ..RequestFields::default()
        };
        let [plain, formed, own] = [fields(false, &[]), fields(true, &[]), fields(true, &["get_weather"])];
        let says = |refusal: &str| [&plain, &formed, &own].map(|fields| is_of_our_tools(refusal.as_bytes(), fields));
        for (refusal, expected) in [
            (
                "json mode cannot be combined with tool/function calling",
                [false, true, false],
            ),
            (
                "You cannot specify response format and function call at the same time",
                [false, true, false],
            ),
            (
                "`response_format` and `tools` cannot be used together",
                [false, true, false],
            ),
            (
                "registry.ollama.ai/library/gemma3 does not support tools",
                [true, true, false],
            ),
            ("No endpoints found that support tool use.", [true, true, false]),
            (
                "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
                [true, true, false],
            ),
            (
                "Function calling is not enabled for models/gemma-3-27b-it",
                [true, true, false],
            ),
            (
                r#"{"error":{"message":"Unsupported parameter: 'tools' is not supported with this model.","type":"invalid_request_error","param":"tools","code":"unsupported_parameter"}}"#,
                [true, true, false],
            ),
            (
                r#"{"error":{"message":"Hosted tool 'function' is not supported.","param": "tools","code": "unsupported_value"}}"#,
                [true, true, false],
            ),
            ("This model doesn't support tool use.", [true, true, false]),
            (
                r#"litellm.BadRequestError: BedrockException - {"message":"This model doesn't support tool use in streaming mode."}"#,
                [true, true, false],
            ),
            (
                "litellm.UnsupportedParamsError: together_ai does not support parameters: ['stream_options', 'tools'], for model=x.",
                [true, true, false],
            ),
            (
                "litellm.UnsupportedParamsError: x does not support parameters: ['logprobs'], for model=x.",
                [false; 3],
            ),
            ("tools param requires --jinja flag", [true, true, false]),
            ("`tools` is not supported for model x", [true, true, false]),
            (
                r#"{"error":{"message":"Unsupported parameter: 'top_p'","param":"top_p","code":"unsupported_parameter"}}"#,
                [false; 3],
            ),
            (
                "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 131",
                [true, true, true],
            ),
            ("Invalid 'messages': array too long.", [false; 3]),
            ("Invalid schema for response_format 'answer'", [false; 3]),
            ("Invalid schema for function 'load_skill'", [false; 3]),
        ] {
            assert_eq!(says(refusal), expected, "{refusal}");
        }
    }

    #[test]
    fn a_refusal_of_a_system_text_is_about_ours_where_the_client_has_none() {
        let request = |format, body: &str| {
            let route = ModelRoute::new(format, CallKind::Generate);
            Request::parse(route, body.to_owned().into()).unwrap()
        };
        let gemma = "Developer instruction is not enabled for models/gemma-3-27b-it";
        let openai = "Unsupported value: 'messages[0].role' does not support 'system' with this model.";
        for (refusal, format, body, expected) in [
            (gemma, Format::Gemini, r#"{"contents":[]}"#, true),
            (
                gemma,
                Format::Gemini,
                r#"{"contents":[],"system_instruction":{"parts":[{"text":"x"}]}}"#,
                false,
            ),
            ("Developer instructions", Format::Gemini, r#"{"contents":[]}"#, false),
            (
                openai,
                Format::Chat,
                r#"{"messages":[{"role":"user","content":"x"}]}"#,
                true,
            ),
            (
                openai,
                Format::Chat,
                r#"{"messages":[{"role":"system","content":"x"}]}"#,
                false,
            ),
        ] {
            assert_eq!(
                is_of_our_text(refusal.as_bytes(), &request(format, body)),
                expected,
                "{refusal} {body}"
            );
        }
    }
}
