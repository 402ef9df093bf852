//! Skills to which a flag of the command line gives something, where its word may mean several: whose name it is, others may have
//! chosen.

use std::collections::BTreeMap;

use knack_gateway::catalog::SkillSource;
use knack_skill::model::SkillRef;

use super::search_settings::SourceFlags;

/// The skills of which one would get what another one is meant to get, with the reason why none of them is served: the first would take
/// name and values.
pub(super) fn contested<'s>(flags: &SourceFlags, skills: &'s [SkillSource]) -> BTreeMap<&'s SkillRef, String> {
    let mut all = BTreeMap::new();
    for given in &flags.given_to {
        let meant: Vec<&SkillSource> = skills.iter().filter(|source| given.is_for(&source.id)).collect();
        let are_uploads = flags.has_uploads && given.is_for_uploads();
        if meant.len() + usize::from(are_uploads) < 2 {
            continue;
        }
        let places = meant.iter().map(|source| format!("{} ({})", source.id, source.origin));
        let uploads = are_uploads.then(|| "every uploaded one".to_owned());
        let text = format!(
            "{}: {} may mean several skills: {}; rename all but one of them, or leave out the others' files",
            given.flag,
            given.skill,
            places.chain(uploads).collect::<Vec<_>>().join(", ")
        );
        for source in meant {
            all.entry(&source.id).or_insert_with(|| text.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use knack_gateway::catalog::LastGood;
    use knack_skill::catalog::Node;
    use knack_skill::config::{ConfigEntry, ConfigSource, ConfiguredSkill, SkillConfig};

    use super::*;
    use crate::dev::assemble::assemble;
    use crate::dev::find_sources::{DiscoveredSources, discover};
    use crate::dev::search_settings::{Search, SkillFlag};

    fn found(files: &[(&str, &str)], words: &[&str], has_uploads: bool) -> (tempfile::TempDir, DiscoveredSources) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let flags = words.iter().map(|word| SkillFlag::of_allow_env(word)).collect();
        let search = Search::of(vec![folder.path().to_owned()]).reporting_given(flags);
        let found = discover(&search.beside_uploads(has_uploads));
        (folder, found)
    }

    const FOLDER: &str = "---\nname: weather\ndescription: d\n---\nx\n";

    fn manifest(namespace: &str) -> String {
        format!(
            "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {{name: weather, namespace: {namespace}}}\nspec:\n  source: {{inline: \
             {{files: {{SKILL.md: \"---\\nname: weather\\ndescription: d\\n---\\nx\\n\"}}}}}}\n"
        )
    }

    #[test]
    fn a_word_that_may_mean_two_skills_serves_neither() {
        let (same, other, uploads) = (manifest("default"), manifest("x"), manifest("uploads"));
        let mine = ("mine/weather/SKILL.md", FOLDER);
        for (files, word, has_uploads, served, is_contested) in [
            (&[mine, ("theirs/a.yaml", &other)][..], "weather:TOKEN", false, 2, false),
            (&[mine, ("theirs/a.yaml", &same)], "weather:TOKEN", false, 0, true),
            (
                &[mine, ("theirs/a.yaml", &same)],
                "default/weather:TOKEN",
                false,
                0,
                true,
            ),
            (
                &[mine, ("aaa/weather/SKILL.md", FOLDER)],
                "weather:TOKEN",
                false,
                0,
                true,
            ),
            // Nothing is given to them: the first is served, as without the flag.
            (&[mine, ("theirs/a.yaml", &same)], "rain:TOKEN", false, 1, false),
            (
                &[mine, ("theirs/a.yaml", &uploads)],
                "uploads/weather:TOKEN",
                false,
                2,
                false,
            ),
            (
                &[mine, ("theirs/a.yaml", &uploads)],
                "uploads/weather:TOKEN",
                true,
                1,
                true,
            ),
            (&[mine, ("theirs/a.yaml", &uploads)], "weather:TOKEN", true, 2, false),
        ] {
            let (_folder, found) = found(files, &[word], has_uploads);
            let texts: Vec<String> = contested(&found.flags, &found.skills).into_values().collect();
            assert_eq!(!texts.is_empty(), is_contested, "{word}: {texts:?}");
            if let Some(text) = texts.first() {
                let said = format!(
                    "--allow-env {word}: {} may mean several skills",
                    word.trim_end_matches(":TOKEN")
                );
                assert!(text.starts_with(&said) && text.contains("rename"), "{text}");
                assert!(
                    text.contains("theirs/a.yaml)") || text.contains("aaa/weather)"),
                    "{text}"
                );
            }
            let snapshot = assemble(found, Node::Absent, &mut LastGood::default());
            assert_eq!(snapshot.skills.len(), served, "{word}: {:?}", snapshot.reports);
        }
    }

    /// A file that comes later: the skill that was served before gets nothing either, and its configuration goes with it.
    #[test]
    fn a_second_skill_that_comes_later_takes_no_value() {
        let mut last = LastGood::default();
        let same = manifest("default");
        for (files, served) in [
            (&[("mine/weather/SKILL.md", FOLDER)][..], 1),
            (&[("mine/weather/SKILL.md", FOLDER), ("theirs/a.yaml", &same)], 0),
            (&[("mine/weather/SKILL.md", FOLDER)], 1),
        ] {
            let (_folder, mut found) = found(files, &["weather:TOKEN"], false);
            found.flags.given = vec![SkillConfig {
                skill: ConfiguredSkill::Named("weather".to_owned()),
                entries: vec![ConfigEntry {
                    name: "a".to_owned(),
                    source: ConfigSource::Value("b".to_owned()),
                }],
            }];
            let snapshot = assemble(found, Node::Absent, &mut last);
            assert_eq!(snapshot.skills.len(), served);
            let errors: Vec<String> = snapshot.reports.iter().map(ToString::to_string).collect();
            let told = errors
                .iter()
                .filter(|text| text.contains("skill weather is not served: --allow-env weather:TOKEN"));
            assert_eq!(told.count(), if served == 0 { 2 } else { 0 }, "{errors:?}");
        }
    }
}
