//! The compiled view of all skills of a runtime: `Catalog::compile(Vec<Arc<Skill>>, CatalogSettings) -> Catalog`.

mod settings;

pub use settings::{CatalogSettings, DEFAULT_LISTING_TOKENS, DEFAULT_MIN_MAX_TOKENS, ModelCode, Node, Pin};

/// Skills and settings, with every text and index that a request needs made ahead.
#[derive(Debug)]
pub struct Catalog {
    settings: CatalogSettings,
}

impl Catalog {
    /// The revision that the settings name.
    pub fn revision(&self) -> &str {
        &self.settings.revision
    }
}
