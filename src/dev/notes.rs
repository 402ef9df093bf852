//! Warnings about what is served: settings of a runtime that change what a skill asks for or name none, and flags that give something to
//! nobody. On a cluster a status says the same (`src/selection`).

use std::collections::{BTreeSet, HashMap};

use knack_api::SkillRuntimeSpec;
use knack_gateway::catalog::{RuntimeSettings, Snapshot, SourceReport};
use knack_skill::call::grantable_env;
use knack_skill::model::{ActivationMode, Skill, SkillRef};
use knack_skill::tool_env::is_operational;

use super::find_sources::DiscoveredSources;
use super::search_settings::{EnvFlag, SkillFlag};

/// The warnings about a snapshot of what was found.
pub(super) fn notes(found: &DiscoveredSources, snapshot: &Snapshot) -> Vec<SourceReport> {
    let mut notes = given_to_nobody(found, snapshot);
    notes.extend(capped_on_a_cluster(found, snapshot));
    notes.extend(pins_of_nobody(found, snapshot));
    notes.extend(repeated_pins(snapshot));
    // The first source of an id is the one that is served.
    let sources = found.skills.iter().rev();
    let origins: HashMap<&SkillRef, &String> = sources.map(|source| (&source.id, &source.origin)).collect();
    for skill in &snapshot.skills {
        let unread = format!("Skill {}", skill.id);
        let origin = origins.get(&skill.id).copied().unwrap_or(&unread);
        notes.extend(served_at_cap(origin, skill, snapshot));
        if let Some(granted) = &found.flags.granted {
            notes.extend(env_notes(origin, skill, granted));
        }
    }
    notes
}

/// Whether a skill that something names is here, served or not.
fn is_here(found: &DiscoveredSources, snapshot: &Snapshot, is_it: impl Fn(&SkillRef) -> bool) -> bool {
    let kept = snapshot.skills.iter().map(|skill| &skill.id);
    found.skills.iter().map(|source| &source.id).chain(kept).any(is_it)
}

/// Warnings about flags that give something to a skill which is not here.
fn given_to_nobody(found: &DiscoveredSources, snapshot: &Snapshot) -> Vec<SourceReport> {
    let unknown = found
        .flags
        .given_to
        .iter()
        // A skill of any name may be uploaded later.
        .filter(|given| !(found.flags.has_uploads && given.is_for_uploads()))
        .filter(|given| !is_here(found, snapshot, |id| given.is_for(id)));
    let report = |given: &SkillFlag| {
        let text = format!("no skill {} is found here, so it has no effect", given.skill);
        SourceReport::warning(given.flag.clone(), text)
    };
    unknown.map(report).collect()
}

/// A warning about pins of skills that are not here.
fn pins_of_nobody(found: &DiscoveredSources, snapshot: &Snapshot) -> Option<SourceReport> {
    let runtime = &snapshot.runtime;
    let pins = runtime.pins.iter().filter(|_| found.flags.reports_pins);
    let unknown = pins.filter(|pin| !is_here(found, snapshot, |id| *id == pin.skill));
    let unknown: Vec<String> = unknown.map(|pin| pin.skill.to_string()).collect();
    (!unknown.is_empty()).then(|| {
        let origin = format!("SkillRuntime {}", runtime.name);
        let text = format!(
            "spec.skillSelector.skills: no skill {} is found here; check namespace and name",
            unknown.join(", ")
        );
        SourceReport::warning(origin, text)
    })
}

/// A warning about skills that several pins name.
fn repeated_pins(snapshot: &Snapshot) -> Option<SourceReport> {
    let runtime = &snapshot.runtime;
    let mut seen = BTreeSet::new();
    let repeated: BTreeSet<String> = runtime
        .pins
        .iter()
        .filter(|pin| !seen.insert(&pin.skill))
        .map(|pin| pin.skill.to_string())
        .collect();
    (!repeated.is_empty()).then(|| {
        let origin = format!("SkillRuntime {}", runtime.name);
        let text = format!(
            "spec.skillSelector.skills names {} more than once: version, mode and inputs of the first pin count, and config of all; keep one \
             pin for each skill",
            repeated.into_iter().collect::<Vec<_>>().join(", ")
        );
        SourceReport::warning(origin, text)
    })
}

/// A warning about manifests whose activation has its effect only since there is no SkillRuntime: one on a cluster has a limit unless it
/// sets another. Folders are not meant for a cluster as they are.
fn capped_on_a_cluster(found: &DiscoveredSources, snapshot: &Snapshot) -> Option<SourceReport> {
    let manifests = found.skills.iter().filter(|source| source.labels.is_some());
    let manifests: BTreeSet<&SkillRef> = manifests.map(|source| &source.id).collect();
    let cap = ActivationMode::from(SkillRuntimeSpec::MAX_ACTIVATION);
    let above = snapshot.skills.iter().filter(|skill| skill.activation > cap);
    let names: Vec<String> = above
        .filter(|skill| manifests.contains(&skill.id))
        .map(|skill| format!("{} ({})", skill.id.name, skill.activation.as_str()))
        .collect();
    let is_without = snapshot.runtime.name == RuntimeSettings::default().name;
    (is_without && !names.is_empty()).then(|| {
        let text = format!(
            "a cluster serves {} as {}, unless spec.maxActivation of its SkillRuntime is higher or a pin sets the mode",
            names.join(", "),
            cap.as_str()
        );
        SourceReport::warning("no SkillRuntime", text)
    })
}

/// A warning about a skill whose activation is above the runtime's limit.
fn served_at_cap(origin: &str, skill: &Skill, snapshot: &Snapshot) -> Option<SourceReport> {
    let (asked, cap) = (skill.activation, snapshot.runtime.max_activation);
    let mut pins = snapshot.runtime.pins.iter();
    let is_pinned = pins.any(|pin| pin.skill == skill.id && pin.mode.is_some());
    (asked > cap && !is_pinned).then(|| {
        let text = format!(
            "skill {}: requests activation {}, is served as {}: spec.maxActivation of the SkillRuntime; raise it or pin the skill",
            skill.id.name,
            asked.as_str(),
            cap.as_str()
        );
        SourceReport::warning(origin, text)
    })
}

/// The warnings about environment values of a skill, which is from `origin`.
pub(super) fn env_notes(origin: &str, skill: &Skill, granted: &[EnvFlag]) -> Vec<SourceReport> {
    let granted: BTreeSet<&str> = granted.iter().filter_map(|flag| flag.variable_for(&skill.id)).collect();
    let (mut asked, mut missing, mut unset_tools) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for tool in &skill.tools {
        let names = grantable_env(skill, tool);
        let is_missing = |name: &&String| !is_operational(name) && !granted.contains(name.as_str());
        let not_here: Vec<String> = names.iter().filter(is_missing).cloned().collect();
        if !not_here.is_empty() {
            unset_tools.push(format!("{}: {}", tool.name, not_here.join(", ")));
        }
        missing.extend(not_here);
        asked.extend(names);
    }
    let name = &skill.id.name;
    let mut notes = Vec::new();
    if !unset_tools.is_empty() {
        notes.push(format!(
            "skill {name}: tools run without environment values that they ask for: {}; grant them with {}, or remove them from tool_env or \
             env of the skill",
            unset_tools.join("; "),
            flags(&skill.id, missing.iter().map(String::as_str))
        ));
    }
    let unused: Vec<&str> = granted
        .into_iter()
        .filter(|variable| !asked.contains(*variable))
        .collect();
    if !unused.is_empty() {
        notes.push(format!(
            "skill {name}: no declared tool that may get values asks for {}, so {} has no effect; correct the flag, or tool_env or env of the \
             skill",
            unused.join(", "),
            flags(&skill.id, unused.iter().copied())
        ));
    }
    notes
        .into_iter()
        .map(|text| SourceReport::warning(origin, text))
        .collect()
}

/// The flags that grant variables to a skill.
fn flags<'a>(skill: &SkillRef, variables: impl Iterator<Item = &'a str>) -> String {
    let word = skill.word();
    let flags: Vec<String> = variables
        .map(|variable| format!("--allow-env {word}:{variable}"))
        .collect();
    flags.join(" ")
}

#[cfg(test)]
mod tests {
    use knack_gateway::catalog::LastGood;
    use knack_skill::catalog::Node;

    use super::*;
    use crate::dev::assemble::assemble;
    use crate::dev::find_sources::{discover, discover_text};
    use crate::dev::search_settings::Search;

    #[test]
    fn activation_limits_and_pins_without_a_skill_are_reported() {
        let message = |runtime: &str, reports_pins: bool| {
            let text = format!(
                "apiVersion: knack.dev/v1alpha1
kind: SkillRuntime
metadata: {{name: main}}
spec: {runtime}
---
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {{name: word}}
spec:
  activation: {{mode: Always}}
  source: {{inline: {{files: {{SKILL.md: \"---\\nname: word\\ndescription: d\\n---\\nx\\n\"}}}}}}
"
            );
            let mut found = discover_text("all.yaml", &text);
            found.flags.reports_pins = reports_pins;
            let snapshot = assemble(found, Node::Absent, &mut LastGood::default());
            let texts: Vec<String> = snapshot.reports.into_iter().map(|report| report.text).collect();
            texts.join("|")
        };
        let capped = "skill word: requests activation Always, is served as Listed: spec.maxActivation of the SkillRuntime; raise it or pin the skill";
        assert_eq!(message("{}", true), capped);
        assert_eq!(message("{maxActivation: Always}", true), "");
        assert_eq!(
            message("{skillSelector: {skills: [{name: word, mode: Always}]}}", true),
            ""
        );
        assert_eq!(message("{skillSelector: {skills: [{name: word}]}}", true), capped);
        let other = "{maxActivation: Always, skillSelector: {skills: [{name: wort}, {namespace: team, name: word}]}}";
        assert_eq!(
            message(other, true),
            "spec.skillSelector.skills: no skill default/wort, team/word is found here; check namespace and name"
        );
        assert_eq!(message(other, false), "");
        let twice = message(
            "{skillSelector: {skills: [{name: word, mode: Always}, {name: word, mode: Never}]}}",
            true,
        );
        assert!(
            twice.starts_with(
                "spec.skillSelector.skills names default/word more than once: version, mode and inputs of the first pin"
            ),
            "{twice}"
        );
    }

    #[test]
    fn activation_above_the_cluster_default_is_reported_without_a_runtime() {
        let message = |mode: &str| {
            let text = format!(
                "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {{name: word}}\nspec:\n  activation: {{mode: {mode}}}\n  \
                 source: {{inline: {{files: {{SKILL.md: \"---\\nname: word\\ndescription: d\\n---\\nx\\n\"}}}}}}\n"
            );
            let snapshot = assemble(discover_text("all.yaml", &text), Node::Absent, &mut LastGood::default());
            let texts: Vec<String> = snapshot.reports.iter().map(ToString::to_string).collect();
            texts.join("|")
        };
        assert_eq!(
            message("Always"),
            "warning: no SkillRuntime: a cluster serves word (Always) as Listed, unless spec.maxActivation of its SkillRuntime is higher or \
             a pin sets the mode"
        );
        assert!(message("Auto").contains("word (Auto) as Listed"));
        assert_eq!(message("Listed"), "");
        assert_eq!(message("OnRequest"), "");
        let folder = tempfile::tempdir().unwrap();
        let document = "---\nname: a\ndescription: d\nactivation: Always\n---\nx\n";
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/SKILL.md"), document).unwrap();
        let found = discover(&Search::of(vec![folder.path().to_owned()]));
        assert_eq!(assemble(found, Node::Absent, &mut LastGood::default()).reports, []);
    }

    #[test]
    fn missing_values_and_unused_flags_are_reported() {
        let document = "---\nname: word\ndescription: d\ntool_env: [REGION]\ntools:\n  - name: rain\n    description: d\n    \
                        command: [python3, rain.py]\n    env: [TOKEN, TZ]\n---\nx\n";
        let folder = tempfile::tempdir().unwrap();
        let skill = folder.path().join("word");
        std::fs::create_dir(&skill).unwrap();
        std::fs::write(skill.join("SKILL.md"), document).unwrap();
        std::fs::write(skill.join("rain.py"), "").unwrap();
        let message = |flags: Option<&[&str]>| {
            let search = Search::of(vec![folder.path().to_owned()]);
            let flags = flags.map(|flags| flags.iter().filter_map(|word| EnvFlag::of(word)).collect());
            let search = match flags {
                Some(flags) => search.reporting_granted(flags),
                None => search,
            };
            let snapshot = assemble(discover(&search), Node::Absent, &mut LastGood::default());
            let texts: Vec<String> = snapshot.reports.into_iter().map(|report| report.text).collect();
            texts.join("|")
        };
        assert_eq!(message(None), "");
        assert_eq!(message(Some(&["word:TOKEN", "default/word:REGION"])), "");
        assert_eq!(message(Some(&["word:TOKEN", "word:REGION", "word:TZ"])), "");
        assert_eq!(
            message(Some(&["other:TOKEN"])),
            "skill word: tools run without environment values that they ask for: rain: REGION, TOKEN; grant them with \
             --allow-env word:REGION --allow-env word:TOKEN, or remove them from tool_env or env of the skill"
        );
        assert_eq!(
            message(Some(&["word:TOKEN", "word:REGION", "word:TOKN"])),
            "skill word: no declared tool that may get values asks for TOKN, so --allow-env word:TOKN has no effect; correct the flag, or \
             tool_env or env of the skill"
        );
    }
}
