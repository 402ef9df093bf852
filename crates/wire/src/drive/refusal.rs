//! What a provider's refusal says of the tools of a request.

use memchr::memmem;

use crate::request::RequestFields;

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
/// Words of a refusal of all tools: of Ollama, OpenRouter, vLLM and Gemini, and the ones that others have.
const NONE: [&str; 9] = [
    "not support tool",
    "not support function",
    "endpoints found that support tool",
    "--enable-auto-tool-choice",
    "function calling is not enabled",
    "function calling is not supported",
    "tool calling is not supported",
    "tool use is not supported",
    "tools are not supported",
];
/// Words of a refusal of so many tools: OpenAI's, whose limit is 128.
const MANY: [&str; 2] = ["array_above_max_length", "array too long"];

/// Whether a refusal is about tools, and about nothing that the client could mend, since it sent none, or fewer: the model takes
/// no tools, none beside the form of the answer that the client demands, or not so many. Providers have no common code for any
/// of it, so its words decide.
pub(super) fn is_of_our_tools(refusal: &[u8], fields: &RequestFields) -> bool {
    let refusal = refusal.to_ascii_lowercase();
    let says = |words: &[&str]| {
        words
            .iter()
            .any(|word| memmem::find(&refusal, word.as_bytes()).is_some())
    };
    if says(&MANY) {
        return says(&TOOLS);
    }
    !fields.has_client_tools() && (says(&NONE) || (fields.structured && says(&TOOLS) && says(&FORM)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
