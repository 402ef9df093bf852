//! The references that objects on a cluster give their skills. Pure.

use std::collections::BTreeMap;

use knack_hub_api::SkillLine;
use knack_registry::litellm_id;
use knack_skill::ids::{of_object, versioned};
use knack_skill::model::{SkillRef, Upload};

use crate::catalog::ObjectIds;

/// How requests may name each skill by its object: by its uid, and as a version of the skill that it was uploaded as, which
/// is one of its own namespace. A skill that was not uploaded is its own version 1. LiteLLM's clients know each skill, and no version
/// of it, by an id of their own.
pub(super) fn ids_of<'a>(
    served: impl Iterator<Item = (&'a SkillRef, &'a SkillLine)> + Clone,
) -> BTreeMap<&'a SkillRef, ObjectIds> {
    let uids: BTreeMap<&SkillRef, &str> = served.clone().map(|(id, line)| (id, line.uid.as_str())).collect();
    let ids = served.map(|(id, line)| {
        let own = of_object(&line.uid);
        let upload = line.upload.as_ref().and_then(|upload| {
            let skill = SkillRef {
                namespace: id.namespace.clone(),
                name: upload.of.clone(),
            };
            Some(Upload {
                id: of_object(uids.get(&skill)?),
                number: upload.number,
            })
        });
        let numbered = upload.as_ref().map_or_else(
            || versioned(&own, "1"),
            |upload| versioned(&upload.id, &upload.number.to_string()),
        );
        let is_version_of_other = upload.as_ref().is_some_and(|upload| upload.id != own);
        let of_litellm = (!is_version_of_other).then(|| litellm_id(&own));
        let object = ObjectIds {
            ids: [own, numbered].into_iter().chain(of_litellm).collect(),
            upload,
        };
        (id, object)
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use knack_hub_api::{Overrides, UploadLine};
    use knack_skill::catalog::Node;
    use knack_skill::model::SkillFile;

    use super::*;
    use crate::catalog::{
        Fingerprint, LastGood, RuntimeSettings, Selected, SkillSource, Snapshot, UnreadSources, assemble, no_packages,
    };

    type Row = (
        &'static str,
        &'static str,
        &'static str,
        Option<(&'static str, u32)>,
        &'static str,
    );

    fn snapshot(rows: &[Row], also: Option<&str>) -> Snapshot {
        let served: Vec<(SkillRef, SkillLine)> = rows
            .iter()
            .map(|(namespace, name, uid, upload, _)| {
                let line = SkillLine {
                    namespace: (*namespace).to_owned(),
                    name: (*name).to_owned(),
                    uid: (*uid).to_owned(),
                    resource_version: "1".to_owned(),
                    digest: String::new(),
                    created: 0,
                    overrides: Overrides::default(),
                    withheld_tools: Vec::new(),
                    upload: upload.map(|(of, number)| UploadLine {
                        of: of.to_owned(),
                        number,
                    }),
                };
                let id = SkillRef {
                    namespace: line.namespace.clone(),
                    name: line.name.clone(),
                };
                (id, line)
            })
            .collect();
        let mut objects = ids_of(served.iter().map(|(id, line)| (id, line)));
        let sources: Vec<SkillSource> = served
            .iter()
            .zip(rows)
            .map(|((id, _), (.., version))| {
                let text = format!("---\nname: {}\ndescription: d\nversion: {version}\n---\nx", id.name);
                let ids = also
                    .filter(|_| id.namespace == "other")
                    .map(|also| vec![also.to_owned()]);
                SkillSource {
                    id: id.clone(),
                    origin: String::new(),
                    labels: None,
                    suspend: false,
                    has_allowed_runtimes: false,
                    files: [(
                        "SKILL.md".to_owned(),
                        SkillFile {
                            bytes: text.as_bytes().into(),
                            executable: false,
                        },
                    )]
                    .into(),
                    overrides: knack_skill::SpecOverrides {
                        ids,
                        ..knack_skill::SpecOverrides::default()
                    },
                    packages: no_packages,
                    functions: None,
                    object: objects.remove(id).unwrap(),
                    withheld: Vec::new(),
                    fingerprint: Fingerprint::default(),
                }
            })
            .collect();
        let selected = Selected {
            sources: &sources.iter().collect::<Vec<_>>(),
            names: &BTreeMap::new(),
            unread: UnreadSources::default(),
        };
        assemble(
            &selected,
            RuntimeSettings::default(),
            Node::Absent,
            &mut LastGood::default(),
            Vec::new(),
        )
    }

    fn named(snapshot: &Snapshot, reference: &str) -> Option<String> {
        let catalog = &snapshot.catalog;
        let entry = catalog
            .find(reference)
            .or_else(|| catalog.find_version(reference).ok().flatten());
        entry.map(|entry| entry.skill.id.to_string())
    }

    const ROWS: [Row; 4] = [
        ("team", "word", "a-1", Some(("word", 2)), "1.2.0"),
        ("team", "word-v1", "a-2", Some(("word", 1)), "1.0.0"),
        ("team", "plain", "b-1", None, "3.0.0"),
        // Says that it is a newer version of a skill that its namespace does not have.
        ("other", "forged", "c-1", Some(("word", 9)), "9.0.0"),
    ];

    #[test]
    fn every_skill_is_named_by_its_uid_and_versions_by_that_of_their_skill() {
        let snapshot = snapshot(&ROWS, None);
        for (reference, expected) in [
            ("skill_knack_a1", Some("team/word")),
            ("skill_knack_a2", Some("team/word-v1")),
            ("skill_knack_b1", Some("team/plain")),
            ("skill_knack_a1:2", Some("team/word")),
            ("skill_knack_a1:1", Some("team/word-v1")),
            ("skill_knack_a1:~1.0", Some("team/word-v1")),
            ("skill_knack_a1:latest", Some("team/word")),
            ("word@1.0.0", Some("team/word-v1")),
            ("word@latest", Some("team/word")),
            ("skill_knack_b1:1", Some("team/plain")),
            ("skill_knack_b1:latest", Some("team/plain")),
            ("word@9.0.0", None),
            ("skill_knack_a1:9", None),
            ("skill_knack_a3", None),
            ("litellm_skill_a1", Some("team/word")),
            ("litellm_skill_a1@1.0.0", Some("team/word-v1")),
            ("litellm_skill_a2", None),
            ("litellm_skill_b1", Some("team/plain")),
        ] {
            assert_eq!(named(&snapshot, reference).as_deref(), expected, "{reference}");
        }
    }

    /// The object of the skill is at a version that this runtime does not serve, and stays in service with the one before, which
    /// has an object of its own by now.
    #[test]
    fn a_held_revision_is_the_skill_and_none_of_its_versions_by_number() {
        let rows = [
            ("team", "word", "a-1", Some(("word", 0)), "1.2.0"),
            ("team", "word-v1", "a-2", Some(("word", 1)), "1.2.0"),
            ("team", "word-v3", "a-3", Some(("word", 3)), "1.3.0"),
        ];
        let snapshot = snapshot(&rows, None);
        for (reference, expected) in [
            ("word", Some("team/word")),
            ("skill_knack_a1", Some("team/word")),
            ("skill_knack_a1:1", Some("team/word-v1")),
            ("skill_knack_a1:2", None),
            ("word@~1.2", Some("team/word-v1")),
            ("word@^1", Some("team/word-v3")),
            ("word@2.0.0", None),
        ] {
            assert_eq!(named(&snapshot, reference).as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn no_skill_takes_the_id_of_another_object() {
        for id in ["skill_knack_a1", "skill_knack_a1:1", "litellm_skill_a1"] {
            let snapshot = snapshot(&ROWS, Some(id));
            let found = named(&snapshot, id).unwrap();
            assert!(found.starts_with("team/word"), "{id}: {found}");
        }
    }
}
