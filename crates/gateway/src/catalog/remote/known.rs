//! The sources of the last snapshot, each with what it was made from: what did not change is not made and judged again.

use std::sync::Arc;

use knack_hub_api::SkillLine;
use knack_hub_api::convert::overrides_from_line;
use knack_skill::model::SkillRef;

use super::content::Tree;
use crate::catalog::{Fingerprint, ObjectIds, SkillSource, no_packages};

/// A source, and what it was made from.
#[derive(Debug)]
pub(super) struct KnownSource {
    line: SkillLine,
    tree: Arc<Tree>,
    pub(super) source: Arc<SkillSource>,
}

impl KnownSource {
    /// The source for the hub's line of a skill; the already judged source of `before`, where it is the same.
    pub(super) fn new(
        id: &SkillRef,
        line: &SkillLine,
        tree: &Arc<Tree>,
        object: ObjectIds,
        before: Option<Self>,
    ) -> Self {
        if let Some(before) = before
            && before.line.says_the_same(line)
            && Arc::ptr_eq(&before.tree, tree)
        {
            return before.with(object);
        }
        let source = SkillSource {
            id: id.clone(),
            origin: origin(id),
            labels: None,
            suspend: false,
            has_allowed_runtimes: false,
            files: tree.files.clone(),
            overrides: overrides_from_line(&line.overrides),
            packages: no_packages,
            functions: None,
            object,
            withheld: line.withheld_tools.clone(),
            fingerprint: Fingerprint::default(),
        };
        Self {
            line: line.clone(),
            tree: Arc::clone(tree),
            source: Arc::new(source),
        }
    }

    /// This skill with the current names for requests.
    pub(super) fn with(mut self, object: ObjectIds) -> Self {
        if self.source.object != object {
            let mut changed = SkillSource::clone(&self.source);
            changed.object = object;
            self.source = Arc::new(changed);
        }
        self
    }
}

/// How reports name a skill.
pub(super) fn origin(id: &SkillRef) -> String {
    format!("Skill {id}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use knack_hub_api::Overrides;

    use super::*;

    #[test]
    fn a_source_is_made_again_where_something_else_than_the_version_changed() {
        let id = SkillRef {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
        };
        let line = SkillLine {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            digest: "d".to_owned(),
            created: 0,
            overrides: Overrides::default(),
            upload: None,
            withheld_tools: Vec::new(),
        };
        let tree = || Arc::new(Tree { files: BTreeMap::new() });
        let (files, others) = (tree(), tree());
        let later = SkillLine {
            resource_version: "2".to_owned(),
            ..line.clone()
        };
        let another = SkillLine {
            uid: "v".to_owned(),
            ..line.clone()
        };
        let ids = ObjectIds {
            ids: vec!["skill_knack_u".to_owned()],
            upload: None,
        };
        for (now, tree, object, is_kept) in [
            (&line, &files, ObjectIds::default(), true),
            (&later, &files, ObjectIds::default(), true),
            (&another, &files, ObjectIds::default(), false),
            (&line, &others, ObjectIds::default(), false),
            (&line, &files, ids, false),
        ] {
            let before = KnownSource::new(&id, &line, &files, ObjectIds::default(), None);
            let source = Arc::clone(&before.source);
            let after = KnownSource::new(&id, now, tree, object.clone(), Some(before));
            assert_eq!(Arc::ptr_eq(&source, &after.source), is_kept, "{now:?} {object:?}");
            assert_eq!(after.source.object, object);
        }
    }
}
