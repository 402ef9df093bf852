//! `package.json`: the members of `dependencies`.

use serde_json::Value;

use super::dependency::Dependency;
use crate::finding::{Finding, FindingKind};
use crate::requirements_txt::text_of;

/// The file of Node's dependencies.
pub(super) const PACKAGE_JSON: &str = "package.json";

/// The members that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PackageJson {
    /// `dependencies`, in the order of their names. Development dependencies are none.
    pub(super) dependencies: Vec<Dependency>,
    /// `overrides`, which choose versions of what dependencies depend on.
    pub(super) overrides: Option<Value>,
}

/// Reads the file. Errors: it cannot be read, or something in it does not come from the index.
pub(super) fn read(bytes: &[u8]) -> Result<PackageJson, Vec<Finding>> {
    const DOCUMENTATION: &str = "see the documentation of package.json";
    let finding = |kind, text: String, help: &'static str| Finding::new(kind, PACKAGE_JSON, 0, text, help);
    let wrong = |text: String| vec![finding(FindingKind::Metadata, text, DOCUMENTATION)];
    let text = text_of(PACKAGE_JSON, bytes).map_err(|found| vec![found])?;
    let value: Value =
        serde_json::from_str(text).map_err(|error| wrong(format!("the file is not valid JSON: {error}")))?;
    let mut findings = Vec::new();
    if value.get("workspaces").is_some_and(|listed| !listed.is_null()) {
        let help = "declare what the scripts import under dependencies";
        findings.push(finding(
            FindingKind::UrlRequirement,
            "workspaces: folders are not installed as packages".to_owned(),
            help,
        ));
    }
    let members = match value.get("dependencies") {
        None | Some(Value::Null) => serde_json::Map::new(),
        Some(Value::Object(members)) => members.clone(),
        Some(_) => return Err(wrong("dependencies: it must be a mapping".to_owned())),
    };
    if members.len() > crate::MAX_PACKAGES {
        let text = format!("{} dependencies, more than {}", members.len(), crate::MAX_PACKAGES);
        return Err(vec![finding(
            FindingKind::TooMany,
            text,
            "declare what the scripts import",
        )]);
    }
    let mut dependencies = Vec::new();
    for (name, range) in &members {
        let read = range
            .as_str()
            .ok_or((FindingKind::Metadata, format!("{name}: its range must be text")))
            .and_then(|range| Dependency::of(name, range));
        match read {
            Ok(dependency) => dependencies.push(dependency),
            Err((kind, text)) => findings.push(finding(kind, format!("dependencies: {text}"), help_of(kind))),
        }
    }
    dependencies.sort();
    let overrides = value.get("overrides").filter(|value| !value.is_null());
    if let Some(Err((kind, text))) = overrides.map(|overrides| check_overrides("overrides", overrides)) {
        findings.push(finding(kind, format!("overrides: {text}"), help_of(kind)));
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(PackageJson {
        dependencies,
        overrides: overrides.filter(|value| value.is_object()).cloned(),
    })
}

/// Whether these choose versions and no other source: npm would fetch a URL, and run git. `name` is that of the package they are for.
fn check_overrides(name: &str, overrides: &Value) -> Result<(), (FindingKind, String)> {
    match overrides {
        // The range of a dependency, which is checked there.
        Value::String(range) if range.starts_with('$') => Ok(()),
        Value::String(range) => Dependency::of(name, range).map(drop),
        Value::Object(members) => members.iter().try_for_each(|(key, inner)| {
            // `.` is the package itself, and `name@range` those of its versions.
            let of = Dependency::parse(key);
            check_overrides(of.as_ref().map_or(name, |of| of.name.as_str()), inner)
        }),
        _ => Err((FindingKind::Metadata, "must be ranges".to_owned())),
    }
}

/// The help for a dependency that cannot be used.
pub(super) const fn help_of(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::UrlRequirement => "name a package of the index with a range, such as ^9",
        _ => "write a name and a range, such as docx@^9",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_and_nothing_else() {
        let all = "{\"dependencies\": {\"docx\": \"^9\", \"@s/a\": \"\"}, \"devDependencies\": {\"x\": \"git+ssh://y\"}, \"overrides\": {\"y\": \"1\"}}";
        let found = read(all.as_bytes()).unwrap();
        let shown: Vec<String> = found
            .dependencies
            .iter()
            .map(|one| format!("{} {}", one.name, one.range))
            .collect();
        assert_eq!(shown, ["@s/a *", "docx ^9"]);
        assert!(found.overrides.is_some());
        assert_eq!(read(b"{}").unwrap(), PackageJson::default());
    }

    #[test]
    fn overrides_choose_versions_and_no_other_source() {
        let of = |overrides: &str| read(format!("{{\"overrides\": {overrides}}}").as_bytes());
        for overrides in [
            "null",
            "{}",
            "{\"a\": \"^1\", \"b@^2\": {\".\": \"2.1\", \"c\": \"$c\"}, \"d\": \"npm:@s/e@1\"}",
        ] {
            assert!(of(overrides).is_ok(), "{overrides}");
        }
        for (overrides, kind, part) in [
            (
                "{\"dep\": \"http://127.0.0.1:1/evil.tgz\"}",
                FindingKind::UrlRequirement,
                "overrides: dep comes from \"http:",
            ),
            (
                "{\"a\": {\"@s/b@^1\": {\".\": \"git+http://h/x.git\"}}}",
                FindingKind::UrlRequirement,
                "overrides: @s/b comes from \"git+http:",
            ),
            (
                "{\"a\": \"1\", \"b\": \"u/x\"}",
                FindingKind::UrlRequirement,
                "overrides: b comes from",
            ),
            (
                "{\"a\": \"file:../x\"}",
                FindingKind::UrlRequirement,
                "overrides: a comes from",
            ),
            ("{\"a\": 1}", FindingKind::Metadata, "overrides: must be ranges"),
            (
                "[\"git+http://h/x.git\"]",
                FindingKind::Metadata,
                "overrides: must be ranges",
            ),
        ] {
            let findings = of(overrides).unwrap_err();
            assert_eq!(findings[0].kind, kind, "{overrides}");
            assert!(findings[0].text.contains(part), "{overrides}: {findings:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_reported_by_name() {
        for (text, kind, part) in [
            ("{", FindingKind::Metadata, "not valid JSON"),
            ("{\"dependencies\": []}", FindingKind::Metadata, "must be a mapping"),
            ("{\"dependencies\": {\"a\": 1}}", FindingKind::Metadata, "a: its range"),
            (
                "{\"dependencies\": {\"a\": \"file:../a\"}}",
                FindingKind::UrlRequirement,
                "a comes from \"file:../a\"",
            ),
            (
                "{\"dependencies\": {\"../a\": \"1\"}}",
                FindingKind::Requirement,
                "\"../a\" is not a package name",
            ),
            (
                "{\"workspaces\": [\"packages/*\"]}",
                FindingKind::UrlRequirement,
                "workspaces",
            ),
        ] {
            let findings = read(text.as_bytes()).unwrap_err();
            assert_eq!(findings[0].kind, kind, "{text}");
            assert!(findings[0].text.contains(part), "{text}: {findings:?}");
        }
        let many: Vec<String> = (0..201).map(|number| format!("\"a{number}\": \"1\"")).collect();
        let many = read(format!("{{\"dependencies\": {{{}}}}}", many.join(",")).as_bytes()).unwrap_err();
        assert_eq!(many[0].kind, FindingKind::TooMany);
    }
}
