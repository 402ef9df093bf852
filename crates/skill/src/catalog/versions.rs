//! Which version of a skill a reference asks for.

use super::{Catalog, CatalogEntry};
use crate::ids;
use crate::model::{ActivationMode, Skill};
use crate::semver::{self, NoVersion};

/// Versions that a refusal names: the newest are the ones that are wanted.
const TOLD_MAX: usize = 20;

impl Catalog {
    /// Finds a served version of a skill by `name@version` (of an uploaded skill's id also `id:version`), where `version` is
    /// what [`semver::choose`] reads, and behind an id also a version of it. A skill that was not uploaded has the one version that
    /// is served. `None`: no such skill is served. [`Catalog::find`] comes first: an id of a version is no condition on it.
    pub fn find_version(&self, reference: &str) -> Result<Option<&CatalogEntry>, NoVersion> {
        let Some((skill, wanted)) = ids::with_version(reference) else {
            return Ok(None);
        };
        // Another id of the skill, such as the one that LiteLLM's clients know.
        if self.position_of_name(skill).is_none()
            && let Some(position) = self.position_of_id(skill)
            && let Some(entry) = self.of_id(position, wanted).and_then(|id| self.find_id(&id))
        {
            return Ok(Some(entry));
        }
        let versions = self.versions(skill);
        let texts: Vec<&str> = versions.iter().map(|(_, entry)| text(entry)).collect();
        if let Some(position) = semver::choose(&texts, wanted) {
            return Ok(versions.get(position).map(|(_, entry)| *entry));
        }
        if versions.is_empty() {
            return Ok(None);
        }
        Err(NoVersion {
            skill: skill.to_owned(),
            wanted: wanted.to_owned(),
            there: there(skill, &versions),
        })
    }

    /// The reference of a version that is named beside the name of a skill: of its id, where that has a version of this word, as
    /// the Skills APIs name versions; else of its name. `None`: no skill has this name; what carries it as an id was made by another
    /// system, which alone knows its versions.
    pub fn versioned(&self, name: &str, version: &str) -> Option<String> {
        let position = self.position_of_name(name)?;
        Some(
            self.of_id(position, version)
                .unwrap_or_else(|| format!("{name}@{version}")),
        )
    }

    /// The id of a version of the skill at a position, if it has one of this word.
    fn of_id(&self, position: usize, version: &str) -> Option<String> {
        let skill = &self.entries.get(position)?.skill;
        let id_of = |skill: &Skill| skill.upload.as_ref().map(|upload| upload.id.clone());
        // Others may carry an id of this form, and are no version of it.
        let is_of = |at: usize| {
            let other = self.entries.get(at).and_then(|entry| id_of(&entry.skill));
            at == position || (other.is_some() && other == id_of(skill))
        };
        let ids = id_of(skill).into_iter().chain(skill.object_ids.iter().cloned());
        let mut ids = ids.map(|id| ids::versioned(&id, version));
        ids.find(|id| self.position_of_id(id).is_some_and(is_of))
    }

    /// The served versions of a skill with their numbers, in the order of their making.
    fn versions(&self, skill: &str) -> Vec<(u32, &CatalogEntry)> {
        let is_upload = |entry: &CatalogEntry| entry.skill.upload.as_ref().is_some_and(|upload| upload.id == skill);
        let position = self.position_of_name(skill).or_else(|| {
            // An id that a skill only says it has names no versions of the skill that was uploaded under it.
            let is_known = self.entries.iter().any(is_upload);
            self.position_of_id(skill).filter(|_| !is_known)
        });
        let named = position.and_then(|position| self.entries.get(position));
        let id = match named {
            Some(entry) => entry.skill.upload.as_ref().map(|upload| upload.id.as_str()),
            None => Some(skill),
        };
        let mut versions: Vec<(u32, &CatalogEntry)> = match id {
            Some(id) => {
                let numbered = self.entries.iter().filter_map(|entry| {
                    let upload = entry.skill.upload.as_ref()?;
                    (upload.id == id).then_some((upload.number, entry))
                });
                numbered.collect()
            }
            None => named.map(|entry| (0, entry)).into_iter().collect(),
        };
        versions.retain(|(_, entry)| entry.mode != ActivationMode::Never);
        versions.sort_by_key(|(number, _)| *number);
        versions
    }
}

fn text(entry: &CatalogEntry) -> &str {
    entry.skill.version.as_deref().unwrap_or_default()
}

/// What a refusal names, newest first. A number names a version behind the id only.
fn there(skill: &str, versions: &[(u32, &CatalogEntry)]) -> Vec<String> {
    let mut texts: Vec<&str> = versions.iter().map(|(_, entry)| text(entry)).collect();
    texts.retain(|text| !text.is_empty());
    semver::newest_first(&mut texts);
    texts.dedup();
    let numbered = versions.iter().rev().filter(|(_, entry)| text(entry).is_empty());
    let numbers = numbered
        .filter(|_| skill.starts_with(ids::UPLOADED) || ids::is_litellm(skill))
        .map(|(number, _)| number.to_string());
    let texts = texts.into_iter().map(str::to_owned);
    texts.chain(numbers).take(TOLD_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{mk_catalog, mk_ref, mk_skill};
    use crate::model::Upload;

    /// A version of an uploaded skill; number 2 is the default.
    fn uploaded(name: &str, number: u32, version: Option<&str>) -> Skill {
        let (namespace, mode) = match number {
            2 => ("uploads".to_owned(), ActivationMode::Listed),
            _ => (format!("uploads-{number}"), ActivationMode::OnRequest),
        };
        let id = format!("skill_knack_{name}");
        let mut ids = vec![ids::versioned(&id, &number.to_string())];
        if number == 2 {
            ids.extend([id.clone(), format!("litellm_skill_{name}")]);
        }
        Skill {
            id: mk_ref(&namespace, name),
            version: version.map(str::to_owned),
            ids,
            upload: Some(Upload { id, number }),
            ..mk_skill(name, mode)
        }
    }

    fn catalog() -> Catalog {
        let file = |name: &str, version: Option<&str>, mode| Skill {
            version: version.map(str::to_owned),
            ..mk_skill(name, mode)
        };
        mk_catalog([
            uploaded("word", 1, Some("1.0.0")),
            uploaded("word", 2, Some("1.2.0")),
            uploaded("word", 3, Some("2.0.0")),
            uploaded("word", 10, Some("1.2.0")),
            uploaded("word", 11, None),
            uploaded("bare", 1, None),
            uploaded("bare", 2, None),
            Skill {
                activation: ActivationMode::Never,
                ..uploaded("off", 2, Some("2.0.0"))
            },
            uploaded("off", 1, Some("1.0.0")),
            file("file", Some("1.4.0"), ActivationMode::Listed),
            file("plain", None, ActivationMode::Always),
            file("never", Some("1.0.0"), ActivationMode::Never),
            Skill {
                object_ids: vec!["skill_knack_0a".to_owned(), "skill_knack_0a:1".to_owned()],
                ..file("applied", Some("1.4.0"), ActivationMode::Listed)
            },
            // Ids in files make nothing a version of another skill.
            Skill {
                version: Some("1.9.0".to_owned()),
                ids: vec!["skill_knack_word:99".to_owned(), "skill_knack_file:1".to_owned()],
                ..mk_skill("forged", ActivationMode::Listed)
            },
        ])
    }

    #[test]
    fn a_reference_names_the_newest_version_that_satisfies_it() {
        let catalog = catalog();
        for (reference, expected) in [
            // Namespaces show the numbers: `uploads` is version 2.
            ("word@1.0.0", "uploads-1"),
            ("word@^1", "uploads-10"),
            ("word@~1.2", "uploads-10"),
            ("word@>1.2.0", "uploads-3"),
            ("word@<=1.0", "uploads-1"),
            ("word@latest", "uploads-3"),
            ("skill_knack_word:^1", "uploads-10"),
            ("skill_knack_word@2.0.0", "uploads-3"),
            ("bare@latest", "uploads"),
            // By another id of the skill: also by a number.
            ("litellm_skill_word@3", "uploads-3"),
            ("litellm_skill_word@^1", "uploads-10"),
            ("litellm_skill_word@latest", "uploads-3"),
            ("litellm_skill_bare@1", "uploads-1"),
            // The served version says Never; another one may still be named.
            ("off@^1", "uploads-1"),
            ("skill_knack_off:latest", "uploads-1"),
            ("file@^1.3", "default"),
            ("default/file@latest", "default"),
            ("plain@latest", "default"),
            ("skill_knack_0a:^1", "default"),
            ("skill_knack_0a:latest", "default"),
        ] {
            let found = catalog
                .find_version(reference)
                .unwrap()
                .map(|entry| &entry.skill.id.namespace[..]);
            assert_eq!(found, Some(expected), "{reference}");
        }
    }

    #[test]
    fn of_the_versions_of_a_skill_one_is_the_default() {
        let catalog = catalog();
        let defaults = catalog.entries().iter().filter(|entry| entry.is_default_version());
        let mut names: Vec<String> = defaults.map(|entry| entry.skill.id.to_string()).collect();
        names.sort_unstable();
        let files = ["applied", "file", "forged", "never", "plain"].map(|name| format!("default/{name}"));
        let uploads = ["bare", "off", "word"].map(|name| format!("uploads/{name}"));
        assert_eq!(names, [&files[..], &uploads[..]].concat());
    }

    #[test]
    fn a_version_beside_a_name_is_that_of_its_id_or_of_its_name() {
        let catalog = catalog();
        for (name, version, expected) in [
            ("word", "3", Some("skill_knack_word:3")),
            ("word", "1.0.0", Some("word@1.0.0")),
            ("uploads/word", "^1", Some("uploads/word@^1")),
            ("word", "latest", Some("word@latest")),
            // Carried by a skill from a file.
            ("word", "99", Some("word@99")),
            ("applied", "1", Some("skill_knack_0a:1")),
            ("file", "^1.3", Some("file@^1.3")),
            ("other", "1", None),
            ("skill_knack_word", "1", None),
        ] {
            assert_eq!(
                catalog.versioned(name, version).as_deref(),
                expected,
                "{name} {version}"
            );
        }
    }

    #[test]
    fn what_is_not_here_is_distinguished_from_a_skill_without_such_a_version() {
        let catalog = catalog();
        for reference in [
            "word",
            "other@^1",
            "never@1.0.0",
            "skill_knack_other:^1",
            "@^1",
            "WORD@^1",
        ] {
            assert!(catalog.find_version(reference).unwrap().is_none(), "{reference}");
        }
        for (reference, skill, there) in [
            ("word@^3", "word", &["2.0.0", "1.2.0", "1.0.0"][..]),
            (
                "skill_knack_word:9",
                "skill_knack_word",
                &["2.0.0", "1.2.0", "1.0.0", "11"],
            ),
            ("skill_knack_bare:9", "skill_knack_bare", &["2", "1"]),
            (
                "litellm_skill_word@9",
                "litellm_skill_word",
                &["2.0.0", "1.2.0", "1.0.0", "11"],
            ),
            ("word@", "word", &["2.0.0", "1.2.0", "1.0.0"]),
            ("off@^2", "off", &["1.0.0"]),
            ("file@2", "file", &["1.4.0"]),
            ("bare@^1", "bare", &[]),
        ] {
            let missing = catalog.find_version(reference).unwrap_err();
            assert_eq!(missing.skill, skill, "{reference}");
            assert_eq!(missing.there, there, "{reference}");
        }
        let many = mk_catalog((1..=30).map(|number| uploaded("many", number, Some(&format!("0.{number}.0")))));
        let missing = many.find_version("many@^1").unwrap_err();
        assert_eq!((missing.there.len(), missing.there[0].as_str()), (TOLD_MAX, "0.30.0"));
    }
}
