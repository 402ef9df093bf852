//! From what was found in files to a snapshot: which runtime, which skills.

use std::collections::BTreeMap;

use knack_gateway::catalog::{
    self, LastGood, RuntimeSettings, Selected, SkillSource, Snapshot, SourceReport, UnreadSources, has_failed,
    last_good_report,
};
use knack_packages::given::forbidden;
use knack_packages::{Rules, stated};
use knack_skill::catalog::{ConfigValues, Node, Unserved};
use knack_skill::model::{AskedPackages, Skill, SkillFile, SkillRef};
use knack_skill::problem::Profile;

use super::contested::contested;
use super::duplicates::left_out;
use super::find_sources::DiscoveredSources;
use super::lost_manifests::lost_ones;
use super::new_revisions::{NewRevisions, ServedRevision};
use super::notes::notes;
use super::runtime::{self, package_rules, version_refused};

/// Makes a snapshot of what was found. A source that is broken now keeps its last good revision, and a report says so.
pub fn assemble(mut found: DiscoveredSources, node: Node, last: &mut LastGood) -> Snapshot {
    let mut reports = std::mem::take(&mut found.reports);
    let mut lost = std::mem::take(&mut found.lost);
    // Of the files of other tools nothing was served: they are not looked up for each skill.
    lost.retain(|report| last.is_served_from(&report.origin));
    found.failed.extend(lost.iter().map(|report| report.origin.clone()));
    let broken = broken_runtime(&found, last).map(|(_, origin)| origin);
    let is_here = |id: &SkillRef| found.skills.iter().any(|source| source.id == *id);
    let was_served = |origin: &str| broken == Some(origin) || last.of_origin(origin).any(|id| !is_here(id));
    reports.extend(lost_ones(lost, was_served));
    let (mut settings, runtime_origin) = choose_runtime(&found, last, &mut reports);
    // The settings that were served last have them already: once more is the same.
    if let ConfigValues::Here(values) = &mut settings.config {
        values.retain(|known| !found.flags.given.contains(known));
        values.extend(found.flags.given.iter().cloned());
    }
    // Skills of the last settings that are not served are determined again.
    let contested = contested(&found.flags, &found.skills);
    settings.unserved = contested.iter().map(|(id, why)| unserved(id, why)).collect();
    // Environments are built by the rules that were read at the start.
    let rules = match &found.flags.at_start {
        Some(at_start) => at_start.rules.clone(),
        None => package_rules(&found.runtimes).unwrap_or_default(),
    };
    let left_out = left_out(&found.skills, &contested);
    let mut sources: Vec<&SkillSource> = Vec::new();
    let mut held: Vec<&SkillRef> = Vec::new();
    let mut new_revisions = NewRevisions::of(found.flags.ready.clone());
    for (place, source) in found.skills.iter().enumerate() {
        if let Some(text) = left_out.get(&place) {
            reports.push(SourceReport::error(source.origin.clone(), text.clone()));
            continue;
        }
        match served_revision(&settings, &rules, source, last, &mut new_revisions) {
            ServedRevision::Served => sources.push(source),
            ServedRevision::LastServed(why) => {
                let text = format!("skill {}: {why}", source.id.name);
                reports.push(SourceReport::error(source.origin.clone(), text));
                reports.push(last_good_report(&source.origin, &source.id));
                held.push(&source.id);
            }
            ServedRevision::Waits(why) => {
                let text = format!("skill {}: {why}", source.id.name);
                reports.push(SourceReport::warning(source.origin.clone(), text));
                held.push(&source.id);
            }
            ServedRevision::NotServed(reason) => {
                settings.unserved.push(unserved(&source.id, &reason));
                let text = format!("skill {} is not served: {reason}", source.id.name);
                reports.push(SourceReport::warning(source.origin.clone(), text));
            }
        }
    }
    new_revisions.install();
    let selected = Selected {
        sources: &sources,
        names: &BTreeMap::new(),
        unread: UnreadSources {
            origins: &found.failed,
            found: found.skills.iter().map(|source| source.id.clone()).collect(),
            held: &held,
        },
    };
    let mut snapshot = catalog::assemble(&selected, settings, node, last, reports);
    last.set_runtime_origin(runtime_origin);
    let about_all = notes(&found, &snapshot);
    snapshot.reports.extend(about_all);
    snapshot
}

fn unserved(skill: &SkillRef, why: &str) -> Unserved {
    Unserved {
        skill: skill.clone(),
        why: why.to_owned(),
    }
}

fn served_revision(
    settings: &RuntimeSettings,
    rules: &Rules,
    source: &SkillSource,
    last: &LastGood,
    new_revisions: &mut NewRevisions,
) -> ServedRevision {
    if let Err(reason) = runtime::accepts(settings, source) {
        return ServedRevision::NotServed(reason);
    }
    // As on a cluster, the last revision that the runtime accepts is still served.
    let instead = |why, is_accepted: &dyn Fn(&Skill) -> bool| {
        if last.skill(&source.id).is_some_and(|skill| is_accepted(skill)) {
            ServedRevision::LastServed(why)
        } else {
            ServedRevision::NotServed(why)
        }
    };
    if let Some(why) = other_version(settings, source, last) {
        return instead(why, &|skill| {
            version_refused(settings, &source.id, skill.version.as_deref()).is_none()
        });
    }
    if let Some(why) = not_allowed(rules, &source.files, source.overrides.packages.as_ref()) {
        return instead(why, &|skill| {
            not_allowed(rules, &skill.files, skill.requirements.as_ref()).is_none()
        });
    }
    new_revisions.served_revision(source, last)
}

/// Why a skill may not have the packages that it declares, by `spec.packages.allowed` of the runtime. What breaks another rule is
/// served, and its code is not run.
pub(super) fn not_allowed(
    rules: &Rules,
    files: &BTreeMap<String, SkillFile>,
    asked: Option<&AskedPackages>,
) -> Option<String> {
    forbidden(rules, &stated(files, asked)).map(|broken| broken.text)
}

/// Why the pin of a skill does not take the version of its source, or of the revision that is served while the source is broken.
fn other_version(settings: &RuntimeSettings, source: &SkillSource, last: &LastGood) -> Option<String> {
    // Only what a pin asks about is read here: each source is read once more when it is judged.
    version_refused(settings, &source.id, None)?;
    let loaded = source.load(Profile::Load).skill;
    let version = match (&loaded, last.skill(&source.id)) {
        (Some(skill), _) => skill.version.as_deref(),
        (None, Some(kept)) => kept.version.as_deref(),
        // The skill's errors are reported when it is judged.
        (None, None) => return None,
    };
    version_refused(settings, &source.id, version)
}

/// The settings to serve, with the file that they are from.
fn choose_runtime(
    found: &DiscoveredSources,
    last: &LastGood,
    reports: &mut Vec<SourceReport>,
) -> (RuntimeSettings, Option<String>) {
    if let Some((kept, origin)) = broken_runtime(found, last) {
        let text = format!(
            "SkillRuntime {}: the settings that were served last stay until this is fixed",
            kept.name
        );
        reports.push(SourceReport::warning(origin, text));
        return (kept.clone(), Some(origin.to_owned()));
    }
    reports.extend(found.over_ceiling());
    let chosen = runtime::choose(&found.runtimes);
    let (settings, origin) = match chosen {
        Some(chosen) => {
            reports.extend(chosen.notes);
            (chosen.settings, Some(chosen.origin))
        }
        None => (runtime::without_manifest(), None),
    };
    reports.extend(after_a_restart(found, &settings, origin.as_deref()));
    (settings, origin)
}

/// The runtime that was served last, if its file cannot be read now: another one, or defaults, would widen what it allows.
fn broken_runtime<'l>(found: &DiscoveredSources, last: &'l LastGood) -> Option<(&'l RuntimeSettings, &'l str)> {
    let (kept, origin) = last.runtime().zip(last.runtime_origin())?;
    // One of the same name that was found by searching is not the one that the user named.
    let was_named = found.named.iter().any(|named| named == origin);
    let is_found = found.runtimes.iter().any(|found| {
        let name = &found.manifest.metadata;
        name.namespace == kept.name.namespace && name.name == kept.name.name && (found.is_named || !was_named)
    });
    (has_failed(origin, &found.failed) && !is_found).then_some((kept, origin))
}

/// A report about fields that have changed and are read once, when the program starts.
fn after_a_restart(
    found: &DiscoveredSources,
    settings: &RuntimeSettings,
    origin: Option<&str>,
) -> Option<SourceReport> {
    let at_start = found.flags.at_start.as_ref()?;
    let shown = origin.unwrap_or("no SkillRuntime");
    let rules = match package_rules(&found.runtimes) {
        Ok(rules) => rules,
        Err(error) => {
            let text = error.to_string();
            let text = text.strip_prefix(&format!("{shown}: ")).unwrap_or(&text);
            return Some(SourceReport::error(shown, text));
        }
    };
    let changed = at_start.changed(settings, &rules);
    (!changed.is_empty()).then(|| {
        let text = format!(
            "SkillRuntime {}: {} differs from what was read at the start, and takes effect after a restart",
            settings.name,
            changed.join(", ")
        );
        SourceReport::warning(shown, text)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dev::find_sources::{discover, discover_text};
    use crate::dev::search_settings::Search;
    use crate::dev::start_settings::StartSettings;

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
            // For a broken source, the pin is compared with the last good revision.
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
    fn packages_that_the_runtime_does_not_allow_are_not_served() {
        let of = |allowed: &str, packages: &str| {
            format!(
                "{}apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {{name: word}}
spec:
  packages: {packages}
  source: {{inline: {{files: {{SKILL.md: \"{GOOD}\"}}}}}}
",
                runtime("main", &format!("{{packages: {{allowed: {allowed}}}}}"))
            )
        };
        let (openpyxl, none, standard) = ("{python: [openpyxl]}", "{python: []}", "{standard: true}");
        let mut last = LastGood::default();
        let field = "spec.packages.allowed of the runtime is";
        for (allowed, packages, is_served, said) in [
            (
                "None",
                openpyxl,
                false,
                format!("skill word is not served: {field} None: "),
            ),
            ("None", none, true, String::new()),
            // The revision before the packages goes on.
            ("None", openpyxl, true, format!("skill word: {field} None: ")),
            ("Standard", standard, true, String::new()),
            (
                "None",
                standard,
                false,
                format!("skill word is not served: {field} None: "),
            ),
            (
                "Standard",
                openpyxl,
                false,
                format!("skill word is not served: {field} Standard: "),
            ),
            ("Declared", openpyxl, true, String::new()),
        ] {
            let snapshot = assemble(
                discover_text("all.yaml", &of(allowed, packages)),
                Node::Absent,
                &mut last,
            );
            assert_eq!(!snapshot.skills.is_empty(), is_served, "{allowed} {packages}");
            let is_reported = snapshot.reports.iter().any(|report| report.text.starts_with(&said));
            assert_eq!(
                is_reported,
                !snapshot.reports.is_empty(),
                "{allowed} {packages}: {:?}",
                snapshot.reports
            );
            assert_eq!(
                said.is_empty(),
                snapshot.reports.is_empty(),
                "{allowed} {packages}: {:?}",
                snapshot.reports
            );
            let has_packages = snapshot.skills.iter().any(|skill| {
                let requirements = skill.requirements.as_ref();
                stated(&skill.files, requirements).has_packages()
            });
            assert_eq!(
                has_packages,
                is_served && said.is_empty() && packages != none,
                "{allowed} {packages}"
            );
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

    fn runtime(name: &str, spec: &str) -> String {
        format!("apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n")
    }

    #[test]
    fn a_runtime_stays_while_its_own_file_is_broken_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let mut last = LastGood::default();
        let mut read = || {
            let found = discover(&Search::of(vec![folder.path().to_owned()]));
            let runtime = assemble(found, Node::Absent, &mut last).runtime;
            (runtime.name.name, runtime.max_tool_rounds)
        };
        let strict = runtime("strict", "{default: true, gateway: {injection: {maxToolRounds: 1}}}");
        let strict_is_served = ("strict".to_owned(), 1);
        write("strict.yaml", &strict);
        write("other.yaml", &runtime("other", "{}"));
        assert_eq!(read(), strict_is_served);
        // Neither the other one nor defaults take its place.
        write("strict.yaml", &strict.replace("default:", "defautl:"));
        assert_eq!(read(), strict_is_served);
        std::fs::remove_file(folder.path().join("other.yaml")).unwrap();
        assert_eq!(read(), strict_is_served);
        // A file of anybody that is no YAML does not bring it back.
        write("values.yaml", "{{ helm }}: [");
        std::fs::remove_file(folder.path().join("strict.yaml")).unwrap();
        assert_eq!(read().0, "knack-dev");
    }

    /// Else prompts and keys would go to the public provider.
    #[test]
    fn an_upstream_of_no_known_api_ends_the_start_and_an_edit_to_it_keeps_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runtime.yaml");
        let mut last = LastGood::default();
        let mut read = |api: &str| {
            let spec = format!("{{gateway: {{upstreams: {{{api}: {{url: 'http://127.0.0.1:9/v1'}}}}}}}}");
            std::fs::write(&file, runtime("main", &spec)).unwrap();
            let found = discover(&Search::of(vec![file.clone()]));
            let refused = found.named_failed.first().map(|report| report.text.clone());
            let snapshot = assemble(found, Node::Absent, &mut last);
            let texts: Vec<String> = snapshot.reports.into_iter().map(|report| report.text).collect();
            (refused, snapshot.runtime.upstreams, texts.join("|"))
        };
        let (refused, upstreams, _) = read("openai");
        assert!(refused.is_none() && upstreams.contains_key("openai"), "{refused:?}");
        let (refused, kept, texts) = read("opnai");
        assert_eq!(
            refused.as_deref(),
            Some(
                "document 1 (SkillRuntime default/main): spec.gateway.upstreams: `opnai`: keys of upstreams must be \
                 openai, anthropic or gemini"
            )
        );
        assert_eq!(kept, upstreams);
        assert!(
            texts.contains("SkillRuntime default/main: the settings that were served last stay"),
            "{texts}"
        );
    }

    #[test]
    fn skill_that_asks_for_more_than_its_runtime_has_is_served_with_a_warning() {
        let skill = |sandbox: &str| {
            format!(
                "apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {{name: word}}
spec:
  source: {{inline: {{files: {{SKILL.md: \"{GOOD}\"}}}}}}
  sandbox: {sandbox}
"
            )
        };
        let ceiling = "; a cluster does not serve such a skill, here its runs have the limits of the runtime";
        for (runtime_spec, sandbox, expected, memory) in [
            (None, "{resources: {limits: {memory: 512Mi}}}", vec![], 512 << 20),
            (
                None,
                "{resources: {limits: {memory: 1Gi}}}",
                vec!["spec.sandbox.resources: memory 1Gi is above the runtime's limit 512Mi; "],
                512 << 20,
            ),
            (
                Some("{sandbox: {resources: {limits: {memory: 1Gi}}}}"),
                "{resources: {limits: {memory: 1Gi}}}",
                vec![],
                1 << 30,
            ),
            (
                Some("{sandbox: {resources: {limits: {memory: 256Mi}}, maxResources: {memory: 1Gi}}}"),
                "{resources: {limits: {memory: 2Gi}}}",
                vec!["spec.sandbox.resources: memory 2Gi is above the runtime's limit 1Gi; "],
                1 << 30,
            ),
            (
                Some("{sandbox: {maxTimeoutSeconds: 20}}"),
                "{timeoutSeconds: 30}",
                vec!["spec.sandbox.timeoutSeconds 30 exceeds the runtime's maxTimeoutSeconds 20; "],
                512 << 20,
            ),
            (
                None,
                "{resources: {limits: {cpu: 4, memory: 1Mi}, requests: {memory: 1Mi}}}",
                vec![
                    "spec.sandbox.resources.limits.cpu, spec.sandbox.resources.requests.memory have an effect only in a cluster",
                    "spec.sandbox.resources: cpu 4 is above the runtime's limit 1; ",
                ],
                512 << 20,
            ),
            (
                None,
                "{maxOutputBytes: 4194304}",
                vec!["spec.sandbox.maxOutputBytes 4194304 is above the highest cap, which is used: 1048576"],
                512 << 20,
            ),
        ] {
            let runtime = runtime_spec.map(|spec| runtime("main", spec)).unwrap_or_default();
            let found = discover_text("all.yaml", &(runtime + &skill(sandbox)));
            let snapshot = assemble(found, Node::Absent, &mut LastGood::default());
            assert_eq!(snapshot.skills.len(), 1, "{sandbox}");
            assert_eq!(snapshot.runtime.max_memory_bytes, Some(memory), "{sandbox}");
            let texts: Vec<&str> = snapshot.reports.iter().map(|report| report.text.as_str()).collect();
            assert_eq!(texts.len(), expected.len(), "{texts:?}");
            for (text, expected) in texts.iter().zip(expected) {
                assert!(text.contains(expected), "{text}");
                assert_eq!(expected.ends_with("; "), text.ends_with(ceiling), "{text}");
            }
        }
    }

    /// Else a change of them alone would not be seen.
    #[test]
    fn a_revision_is_another_with_what_only_a_manifest_sets() {
        let revision = |version: &str, seconds: u32| {
            let text = manifests(GOOD, version, ">=1").replace(
                "spec:\n  version",
                "spec:\n  sandbox: {timeoutSeconds: SECONDS}\n  version",
            );
            let text = text.replace("SECONDS", &seconds.to_string());
            assemble(discover_text("all.yaml", &text), Node::Absent, &mut LastGood::default()).revision
        };
        assert_eq!(revision("1.0.0", 5), revision("1.0.0", 5));
        assert_ne!(revision("1.0.0", 5), revision("1.0.0", 6));
        assert_ne!(revision("1.0.0", 5), revision("1.0.1", 5));
    }

    #[test]
    fn fields_of_a_runtime_without_effect_here_are_named() {
        let spec = "{sandbox: {resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}, \
                    maxResources: {memory: 2Gi, nvidia.com/gpu: 1}, logs: Plain}}";
        let found = discover_text("runtime.yaml", &runtime("r", spec));
        let texts: Vec<&str> = found.reports.iter().map(|report| report.text.as_str()).collect();
        let expected = "SkillRuntime r: spec.sandbox.logs, spec.sandbox.resources.limits.cpu, \
                        spec.sandbox.resources.requests.cpu, spec.sandbox.maxResources.nvidia.com/gpu have an effect only in a cluster";
        assert_eq!(texts, [expected]);
    }

    #[test]
    fn what_is_read_at_the_start_takes_effect_after_a_restart_and_says_so() {
        let read = |spec: &str| {
            let mut found = discover_text("runtime.yaml", &runtime("r", spec));
            let (runtime, rules) = (runtime::without_manifest(), package_rules(&[]).unwrap());
            found.flags.at_start = Some(Arc::new(StartSettings { runtime, rules }));
            let snapshot = assemble(found, Node::Absent, &mut LastGood::default());
            let texts: Vec<String> = snapshot.reports.into_iter().map(|report| report.text).collect();
            texts.join("|")
        };
        assert_eq!(read("{gateway: {injection: {maxToolRounds: 1}}}"), "");
        for (spec, fields) in [
            (
                "{gateway: {upstreams: {openai: {url: 'http://127.0.0.1:9/v1'}}}, warmPool: {replicas: 7}}",
                "spec.gateway.upstreams, spec.warmPool.replicas",
            ),
            ("{concurrency: {maxRuns: 7}}", "spec.concurrency.maxRuns"),
            (
                "{sandbox: {resources: {limits: {memory: 1Gi}}}}",
                "spec.sandbox.resources",
            ),
            ("{packages: {requireLock: true}}", "spec.packages"),
        ] {
            let said = read(spec);
            let expected =
                format!("SkillRuntime default/r: {fields} differs from what was read at the start, and takes effect");
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}
