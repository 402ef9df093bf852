//! Other names by which a model calls Knack's tools.
//!
//! A model may write a name that it was not given, as `name@version`, from a history or a text that has it. The call is run as
//! one of the tool, and goes back to the provider by the tool's own name: providers refuse a history with a name that has `@`.

use bytes::Bytes;

use crate::format::dialect;
use crate::json::{self, Edits};
use crate::request::Injection;
use crate::route::Format;

/// The other names of one request's tools, each with the tool's own.
#[derive(Debug, Default)]
pub(super) struct Aliases(Vec<(String, String)>);

impl Aliases {
    /// The aliases of an injection, without those that are names of the client's own tools.
    pub(super) fn of(injection: &Injection, client_tools: &[String]) -> Self {
        let all = injection.material.aliases().iter();
        Self(
            all.filter(|(alias, _)| !client_tools.contains(alias))
                .cloned()
                .collect(),
        )
    }

    /// All names by which a model calls the tools.
    pub(super) fn own_names(&self, injection: &Injection) -> Vec<String> {
        let names = injection.tools().iter().map(|tool| &tool.name);
        names.chain(self.0.iter().map(|(alias, _)| alias)).cloned().collect()
    }

    /// The tool's own name.
    pub(super) fn resolve<'n>(&'n self, name: &'n str) -> &'n str {
        let known = self.0.iter().find(|(alias, _)| alias == name);
        known.map_or(name, |(_, tool)| tool.as_str())
    }

    /// A turn with the tools' own names.
    pub(super) fn rename(&self, format: Format, turn: Vec<Bytes>) -> Vec<Bytes> {
        if self.0.is_empty() {
            return turn;
        }
        turn.into_iter().map(|element| self.renamed(format, element)).collect()
    }

    fn renamed(&self, format: Format, element: Bytes) -> Bytes {
        let Ok(whole) = json::document(&element) else {
            return element;
        };
        let mut edits = Edits::default();
        for call in dialect(format).named_calls(&element, whole) {
            if let Some(span) = json::get(&element, call, "name")
                && let Some(name) = json::text(&element, span)
                && self.resolve(&name) != name
            {
                edits.replace(span, json::quoted(self.resolve(&name)));
            }
        }
        if edits.is_empty() {
            element
        } else {
            edits.apply(&element).into()
        }
    }
}
