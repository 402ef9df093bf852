//! From what was found in files to a snapshot: which runtime, which skills.

use std::collections::{BTreeMap, HashMap};

use knack_gateway::catalog::{
    self, LastGood, RuntimeSettings, Selected, SkillSource, Snapshot, SourceReport, UnreadSources,
};
use knack_packages::stated;
use knack_skill::catalog::{ConfigValues, Node, Unserved};
use knack_skill::model::SkillRef;
use knack_skill::problem::Profile;

use super::discover::DiscoveredSources;
use super::runtime::{self, version_refused};

/// Makes a snapshot of what was found. A source that is broken now keeps its last good revision, and a report says so.
pub fn assemble(mut found: DiscoveredSources, node: Node, last: &mut LastGood) -> Snapshot {
    let mut reports = std::mem::take(&mut found.reports);
    let mut settings = choose_runtime(&found, last, &mut reports);
    // The settings that were served last have them already: once more is the same.
    if let ConfigValues::Here(values) = &mut settings.config {
        values.retain(|known| !found.given.contains(known));
        values.extend(found.given.iter().cloned());
    }
    // Those of the settings that were served last are found anew.
    settings.unserved.clear();
    let mut first: HashMap<&SkillRef, &str> = HashMap::new();
    let mut sources: Vec<&SkillSource> = Vec::new();
    let mut held: Vec<&SkillRef> = Vec::new();
    for source in &found.skills {
        if let Some(first) = first.get(&source.id) {
            let text = format!(
                "skill {}/{} is already defined in {first}; this one is left out; rename one",
                source.id.namespace, source.id.name
            );
            reports.push(SourceReport::error(source.origin.clone(), text));
            continue;
        }
        first.insert(&source.id, &source.origin);
        match verdict(&settings, source, last) {
            Verdict::Served => sources.push(source),
            Verdict::LastServed(why) => {
                let text = format!("skill {}: {why}", source.id.name);
                reports.push(SourceReport::error(source.origin.clone(), text));
                held.push(&source.id);
            }
            Verdict::NotServed(reason) => {
                settings.unserved.push(Unserved {
                    skill: source.id.clone(),
                    why: reason.clone(),
                });
                let text = format!("skill {} is not served: {reason}", source.id.name);
                reports.push(SourceReport::warning(source.origin.clone(), text));
            }
        }
    }
    let selected = Selected {
        sources: &sources,
        names: &BTreeMap::new(),
        unread: UnreadSources {
            origins: &found.failed,
            found: first.into_keys().cloned().collect(),
            held: &held,
        },
    };
    catalog::assemble(&selected, settings, node, last, reports)
}

/// What is served of a source.
enum Verdict {
    /// The source as it is.
    Served,
    /// The revision that was served last, and why.
    LastServed(String),
    /// Nothing, and why.
    NotServed(String),
}

fn verdict(settings: &RuntimeSettings, source: &SkillSource, last: &LastGood) -> Verdict {
    if let Err(reason) = runtime::accepts(settings, source) {
        return Verdict::NotServed(reason);
    }
    if let Some(why) = other_version(settings, source, last) {
        // As on a cluster: the last revision that the pin takes goes on.
        let before = last.skill(&source.id);
        let is_taken =
            before.is_some_and(|skill| version_refused(settings, &source.id, skill.version.as_deref()).is_none());
        return if is_taken {
            Verdict::LastServed(why)
        } else {
            Verdict::NotServed(why)
        };
    }
    packages_refused_now(source, last).map_or(Verdict::Served, Verdict::LastServed)
}

/// Why the pin of a skill does not take the version of its source, or of the revision that is served while the source is broken.
fn other_version(settings: &RuntimeSettings, source: &SkillSource, last: &LastGood) -> Option<String> {
    // Only what a pin asks about is read here: each source is read once more when it is judged.
    version_refused(settings, &source.id, None)?;
    let loaded = source.load(Profile::Load).skill;
    let version = match (&loaded, last.skill(&source.id)) {
        (Some(skill), _) => skill.version.as_deref(),
        (None, Some(kept)) => kept.version.as_deref(),
        // Its errors are reported when it is judged.
        (None, None) => return None,
    };
    version_refused(settings, &source.id, version)
}

/// Why a skill cannot have the packages that it declares now, if the revision that was served last could: that one goes
/// on. A skill that never could is served, and its code is not run.
fn packages_refused_now(source: &SkillSource, last: &LastGood) -> Option<String> {
    let declared = stated(&source.files, source.overrides.packages.as_ref());
    let why = declared.findings.iter().find(|finding| finding.is_error())?;
    let before = last.skill(&source.id)?;
    let was_refused = stated(&before.files, before.requirements.as_ref()).is_refused();
    (!was_refused).then(|| why.to_string())
}

fn choose_runtime(found: &DiscoveredSources, last: &LastGood, reports: &mut Vec<SourceReport>) -> RuntimeSettings {
    let (chosen, notes) = runtime::choose(&found.runtimes);
    reports.extend(notes);
    // A runtime whose file broke is still the runtime; defaults would widen what it allows.
    chosen.unwrap_or_else(|| match last.runtime() {
        Some(last) if !found.failed.is_empty() => last.clone(),
        _ => RuntimeSettings::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::discover::discover_text;
    use super::*;

    const GOOD: &str = "---\\nname: word\\ndescription: d\\n---\\nx\\n";
    const BROKEN: &str = "---\\nbroken";

    fn manifests(document: &str, version: &str, wanted: &str) -> String {
        format!(
            "apiVersion: knack.dev/v1alpha1
kind: SkillRuntime
metadata: {{name: main}}
spec: {{skillSelector: {{skills: [{{name: word, version: \"{wanted}\"}}]}}}}
---
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {{name: word}}
spec:
  version: \"{version}\"
  source: {{inline: {{files: {{SKILL.md: \"{document}\"}}}}}}
"
        )
    }

    #[test]
    fn a_pin_holds_a_skill_at_the_versions_that_it_takes() {
        let mut last = LastGood::default();
        let other = "its version is 2.0.0, and the pin of the SkillRuntime requires";
        for (document, version, wanted, serves, said) in [
            (GOOD, "1.0.0", "^1", Some("1.0.0"), None),
            (
                GOOD,
                "2.0.0",
                "^1",
                Some("1.0.0"),
                Some(format!("skill word: {other} ^1")),
            ),
            (BROKEN, "2.0.0", "^1", Some("1.0.0"), Some("skill word: ".to_owned())),
            (
                GOOD,
                "2.0.0",
                "^3",
                None,
                Some(format!("skill word is not served: {other} ^3")),
            ),
            (GOOD, "2.0.0", "^2", Some("2.0.0"), None),
            // Of a broken source the last good revision is what a pin is asked about.
            (
                BROKEN,
                "1.0.0",
                "^1",
                None,
                Some(format!("skill word is not served: {other} ^1")),
            ),
        ] {
            let found = discover_text("all.yaml", &manifests(document, version, wanted));
            let snapshot = assemble(found, Node::Absent, &mut last);
            let versions: Vec<Option<&str>> = snapshot.skills.iter().map(|skill| skill.version.as_deref()).collect();
            assert_eq!(
                versions,
                serves.map(Some).into_iter().collect::<Vec<_>>(),
                "{version} {wanted}"
            );
            let texts: Vec<&str> = snapshot.reports.iter().map(|report| report.text.as_str()).collect();
            match said {
                Some(said) => assert!(texts.iter().any(|text| text.starts_with(&said)), "{said}: {texts:?}"),
                None => assert!(texts.is_empty(), "{texts:?}"),
            }
        }
    }

    #[test]
    fn a_pin_holds_its_skill_and_no_other_of_its_file() {
        let mut last = LastGood::default();
        let other = format!(
            "---
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {{name: other}}
spec:
  source: {{inline: {{files: {{SKILL.md: \"{}\"}}}}}}
",
            GOOD.replace("word", "other")
        );
        let both = manifests(GOOD, "1.0.0", "^1").replace("skills: [", "skills: [{name: other}, ") + &other;
        let held = manifests(GOOD, "2.0.0", "^1");
        for (origin, text, expected) in [
            ("all.yaml", &both, &["other", "word"][..]),
            ("all.yaml", &held, &["word"]),
            // In whatever file it is now.
            ("moved.yaml", &held, &["word"]),
        ] {
            let snapshot = assemble(discover_text(origin, text), Node::Absent, &mut last);
            let served: Vec<&str> = snapshot.skills.iter().map(|skill| skill.id.name.as_str()).collect();
            assert_eq!(served, expected, "{origin}");
            let word = snapshot.skills.last().unwrap();
            assert_eq!(word.version.as_deref(), Some("1.0.0"), "{origin}");
        }
    }
}
