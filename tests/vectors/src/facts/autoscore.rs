//! The text that OmniRoute scores skills against, in one piece. The product's scorer reads its pieces, each once.

use knack_skill::autoscore::AutoContext;

/// The whole context text of a request, lower case.
pub(crate) fn context(request: &AutoContext) -> String {
    let texts = request.messages.iter().filter_map(|message| message.text.as_deref());
    let texts = texts.collect::<Vec<_>>().join(" ").to_lowercase();
    if texts.is_empty() {
        request.head()
    } else {
        format!("{} {texts}", request.head())
    }
}
