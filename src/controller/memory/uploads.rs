//! The ConfigMaps that uploads of skills were read from.

use super::bounded_map::BoundedMap;

/// ConfigMaps by name, each with its `resourceVersion`.
pub(in crate::controller) type Versions = Vec<(String, Option<String>)>;

/// The ConfigMaps of uploads, by the uid of their skill.
#[derive(Debug, Default)]
pub(in crate::controller) struct Uploads(BoundedMap<String, Versions>);

impl Uploads {
    /// Remembers which ConfigMaps a skill's upload was read from.
    pub(in crate::controller) fn remember(&self, uid: &str, versions: Versions) {
        self.0.remember(uid.to_owned(), versions);
    }

    /// The ConfigMaps that a skill's upload was read from.
    pub(in crate::controller) fn get(&self, uid: &str) -> Option<Versions> {
        self.0.lock().get(uid).cloned()
    }
}
