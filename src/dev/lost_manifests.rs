//! Manifest files whose objects are gone although the file is there: it was emptied, or written in part.

use knack_api::{documents, parse_manifests};
use knack_gateway::catalog::SourceReport;

/// What to do if this was meant.
const MEANT: &str = "; if its objects are to go, delete the file";

/// Why a text that may have had objects before has none now, or not all of them.
pub(super) fn lost(text: &str) -> Option<String> {
    if documents(text).is_empty() {
        return Some("it has no object".to_owned());
    }
    let broken = parse_manifests(text).into_iter().find_map(Result::err)?;
    Some(broken.to_string())
}

/// The files of these from which something was served that is nowhere else now; any other is a file of another tool.
pub(super) fn lost_ones(files: Vec<SourceReport>, was_served: impl Fn(&str) -> bool) -> Vec<SourceReport> {
    let of_ours = files.into_iter().filter(|report| was_served(&report.origin));
    let reports = of_ours.map(|report| SourceReport {
        text: report.text + MEANT,
        ..report
    });
    reports.collect()
}

#[cfg(test)]
mod tests {
    use knack_gateway::catalog::LastGood;
    use knack_skill::catalog::Node;

    use crate::dev::assemble::assemble;
    use crate::dev::find_sources::discover;
    use crate::dev::search_settings::Search;

    const SKILL: &str = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: word}\nspec:\n  \
                         source: {inline: {files: {SKILL.md: \"---\\nname: word\\ndescription: d\\n---\\nx\\n\"}}}\n";
    const RUNTIME: &str =
        "---\napiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: strict}\nspec: {maxRisk: Safe}\n";

    #[test]
    fn a_manifest_that_is_emptied_or_written_in_part_keeps_what_it_gave_and_says_why() {
        let stays = "skill word: the last good revision stays in service";
        let no_object = "it has no object; if its objects are to go, delete the file";
        for (text, said) in [
            ("", no_object),
            ("\n", no_object),
            ("# apiVersion: knack.dev/v1alpha1\n", no_object),
            ("apiV", "document 1: apiVersion and kind are required"),
            ("null", "document 1: apiVersion and kind are required"),
            ("apiVersion: knack", "document 1: apiVersion and kind are required"),
            (
                "apiVersion: knack.dev/v1alpha1",
                "document 1: apiVersion and kind are required",
            ),
            ("knack.dev/v1alpha1", "document 1: apiVersion and kind are required"),
            ("{{{", "document 1: not valid YAML"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("m.yaml");
            for path in [folder.path(), file.as_path()] {
                let is_named = path == file;
                let mut last = LastGood::default();
                let mut read = |text: &str| {
                    std::fs::write(&file, text).unwrap();
                    let snapshot = assemble(discover(&Search::of(vec![path.to_owned()])), Node::Absent, &mut last);
                    let texts: Vec<String> = snapshot.reports.iter().map(|report| report.text.clone()).collect();
                    (snapshot.names().join(","), snapshot.runtime.name.name, texts)
                };
                // It is a file of another tool until it has an object.
                let (names, _, texts) = read(text);
                assert_eq!(names, "", "{text}");
                assert!(
                    is_named || text.contains("knack.dev/v") || texts.is_empty(),
                    "{text}: {texts:?}"
                );
                let (names, runtime, texts) = read(&format!("{SKILL}{RUNTIME}"));
                assert_eq!(
                    (names.as_str(), runtime.as_str()),
                    ("default/word", "strict"),
                    "{texts:?}"
                );
                let (names, runtime, texts) = read(text);
                assert_eq!((names.as_str(), runtime.as_str()), ("default/word", "strict"), "{text}");
                // A named file that is no manifest is told as such.
                let is_told = texts.first().is_some_and(|first| first.starts_with(said));
                assert!(is_told || (is_named && said != no_object), "{text}: {texts:?}");
                assert!(texts.iter().any(|text| text.starts_with(stays)), "{text}: {texts:?}");
                assert!(
                    texts
                        .iter()
                        .any(|text| text.contains("the settings that were served last stay")),
                    "{texts:?}"
                );
                // Another object is a choice, and so is the end of the file.
                let other = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
                assert_eq!(read(other).0, "", "{text}");
            }
        }
    }

    #[test]
    fn an_emptied_manifest_whose_objects_are_elsewhere_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let mut last = LastGood::default();
        let mut read = || {
            let found = discover(&Search::of(vec![folder.path().to_owned()]));
            let snapshot = assemble(found, Node::Absent, &mut last);
            (snapshot.names().join(","), snapshot.reports)
        };
        write("a.yaml", &format!("{SKILL}{RUNTIME}"));
        assert_eq!(read(), ("default/word".to_owned(), Vec::new()));
        write("a.yaml", "");
        write("b.yaml", &format!("{SKILL}{RUNTIME}"));
        assert_eq!(read(), ("default/word".to_owned(), Vec::new()));
        std::fs::remove_file(folder.path().join("b.yaml")).unwrap();
        assert_eq!(read().0, "");
    }
}
