//! What a skill without a manifest is served as.

use knack_gateway::catalog::{Fingerprint, ObjectIds, SkillSource, no_packages};
use knack_python_schema::read_functions;
use knack_skill::SpecOverrides;
use knack_skill::model::SkillRef;
use knack_vocabulary::DEFAULT_NAMESPACE;

use crate::sources::Files;

/// A skill without a manifest.
pub(super) fn bare(name: String, origin: String, files: Files) -> SkillSource {
    SkillSource {
        id: SkillRef {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            name,
        },
        origin,
        labels: None,
        suspend: false,
        has_allowed_runtimes: false,
        files,
        overrides: SpecOverrides::default(),
        packages: no_packages,
        functions: Some(read_functions),
        object: ObjectIds::default(),
        withheld: Vec::new(),
        fingerprint: Fingerprint::default(),
    }
}
