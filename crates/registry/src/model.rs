//! The entry of an uploaded skill, and the rules of its versions. Pure.

use knack_skill::ids::versioned;
use knack_skill::names;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::catalogs::Catalog;
use crate::draft::Draft;
use crate::error::StoreError;
use crate::litellm::{LiteLlmFields, litellm_id};
use crate::mode::Mode;
use crate::owner::Owner;

pub use knack_skill::ids::UPLOADED as ID_PREFIX;

/// How ids of versions begin.
pub use knack_skill::ids::UPLOADED_VERSION as VERSION_PREFIX;
/// Versions of one skill: each of them is served as long as it exists.
pub const VERSIONS_MAX: usize = 100;

/// An uploaded skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillEntry {
    /// `skill_knack_` and a UUID of version 7, so that ids sort by their time.
    pub id: String,
    /// The owner, who alone sees it.
    pub owner: Owner,
    /// The name in its SKILL.md; of all its versions.
    pub name: String,
    /// `display_name` or `display_title` as given.
    pub title: Option<String>,
    /// Set over what its versions ask for.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Unix time in microseconds.
    pub created: i64,
    /// Unix time of the last change in microseconds.
    pub updated: i64,
    /// The version that is served where none is named. `None` exactly if there is no version.
    pub default: Option<u32>,
    /// The number of the next version: numbers are never used twice.
    pub next: u32,
    /// Oldest first.
    pub versions: Vec<Version>,
}

/// One version of a skill; it never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Counted from 1.
    pub number: u32,
    /// `skver_knack_` and a UUID.
    pub id: String,
    /// Unix time in microseconds; no two versions of a skill have the same.
    pub created: i64,
    /// The description in its SKILL.md.
    pub description: String,
    /// The version that it says of itself. `None` also for what was stored before this was noted.
    #[serde(default)]
    pub version: Option<String>,
    /// The mode that it asks for. `None`: another activation, or it was stored before this was noted.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// The catalog that it was installed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<Catalog>,
    /// The fields of LiteLLM's API that are not files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub litellm: Option<LiteLlmFields>,
    /// The digest of its file tree ([`knack_skill::tree::digest`]).
    pub digest: String,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Time and ids that a change needs.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// Unix time in microseconds.
    pub now: i64,
    /// The id of the skill, without its prefix.
    pub skill: String,
    /// The id of the version, without its prefix.
    pub version: String,
}

impl Stamp {
    /// The time of this moment, and ids that nothing else has.
    pub fn of_now() -> Self {
        Self {
            now: now(),
            skill: Uuid::now_v7().simple().to_string(),
            version: Uuid::now_v7().simple().to_string(),
        }
    }
}

/// Unix time in microseconds.
pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

impl SkillEntry {
    /// The title, where the name is derived from it: the skill's name as its author wrote it.
    pub fn written(&self) -> Option<&str> {
        self.title
            .as_deref()
            .filter(|title| names::normalize(title) == self.name)
    }

    /// A skill with its first version.
    pub fn new(owner: Owner, title: Option<String>, draft: &Draft, stamp: &Stamp) -> Self {
        let mut entry = Self {
            id: format!("{ID_PREFIX}{}", stamp.skill),
            owner,
            name: draft.name.clone(),
            title,
            mode: None,
            created: stamp.now,
            updated: stamp.now,
            default: None,
            next: 1,
            versions: Vec::new(),
        };
        entry.push(draft, stamp);
        entry
    }

    /// With one more version. Errors: another name, or too many versions.
    pub fn with_version(&self, draft: &Draft, make_default: bool, stamp: &Stamp) -> Result<Self, StoreError> {
        if draft.name != self.name {
            return Err(StoreError::OtherName {
                had: self.name.clone(),
                given: draft.name.clone(),
            });
        }
        if self.versions.len() >= VERSIONS_MAX {
            return Err(StoreError::TooManyVersions { most: VERSIONS_MAX });
        }
        self.demand_new(draft)?;
        let mut entry = self.clone();
        let kept = entry.default.filter(|_| !make_default);
        entry.push(draft, stamp);
        entry.default = kept.or(entry.default);
        Ok(entry)
    }

    /// Refuses what the skill has: the version of a release; of what a catalog has, the files that came last under the same version.
    pub(crate) fn demand_new(&self, draft: &Draft) -> Result<(), StoreError> {
        let is_latest = |there: &Version| there.version == draft.version && there.digest == draft.digest;
        let is_again = draft.catalog.is_some() && self.latest().is_some_and(is_latest);
        if draft.is_release || is_again {
            return self.demand_new_version(draft);
        }
        Ok(())
    }

    /// Refuses an upload whose version the skill has.
    fn demand_new_version(&self, draft: &Draft) -> Result<(), StoreError> {
        match &draft.version {
            Some(version) if self.versions.iter().any(|there| there.version == draft.version) => {
                Err(StoreError::VersionTaken {
                    name: self.name.clone(),
                    version: version.clone(),
                    id: self.id.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// With one more version, which is served by default. Where there are as many as there may be, the oldest other one goes.
    pub fn with_version_in_turn(&self, draft: &Draft, stamp: &Stamp) -> Result<Self, StoreError> {
        if self.versions.len() < VERSIONS_MAX {
            return self.with_version(draft, true, stamp);
        }
        let mut others = self
            .versions
            .iter()
            .filter(|version| self.default != Some(version.number));
        let oldest = others
            .next()
            .ok_or(StoreError::TooManyVersions { most: VERSIONS_MAX })?;
        self.without_version(oldest.number, stamp.now)?
            .with_version(draft, true, stamp)
    }

    /// With another version served by default.
    pub fn with_default(&self, number: u32, now: i64) -> Result<Self, StoreError> {
        self.version(number).ok_or(StoreError::NotFound)?;
        Ok(Self {
            default: Some(number),
            updated: now.max(self.updated),
            ..self.clone()
        })
    }

    /// With a mode over what its versions ask for.
    #[must_use]
    pub fn with_mode(&self, mode: Mode, now: i64) -> Self {
        Self {
            mode: Some(mode),
            updated: now.max(self.updated),
            ..self.clone()
        }
    }

    /// The mode of a version; `None`: its SKILL.md says something else.
    pub fn mode_of(&self, version: &Version) -> Option<Mode> {
        self.mode.or(version.mode)
    }

    /// Without a version; if it was the default, the highest of the others is.
    pub fn without_version(&self, number: u32, now: i64) -> Result<Self, StoreError> {
        self.version(number).ok_or(StoreError::NotFound)?;
        let mut entry = self.clone();
        entry.versions.retain(|version| version.number != number);
        if entry.default == Some(number) {
            entry.default = entry.latest().map(|version| version.number);
        }
        entry.updated = now.max(self.updated);
        Ok(entry)
    }

    fn push(&mut self, draft: &Draft, stamp: &Stamp) {
        let last = self.versions.last();
        let after_last = last.map_or(i64::MIN, |last| last.created + 1);
        let bare = last.and_then(|last| last.id.strip_prefix(VERSION_PREFIX));
        let id = bare.map_or_else(|| stamp.version.clone(), |last| behind(last, &stamp.version));
        self.versions.push(Version {
            number: self.next,
            id: format!("{VERSION_PREFIX}{id}"),
            created: stamp.now.max(after_last),
            description: draft.description.clone(),
            version: draft.version.clone(),
            mode: draft.mode,
            catalog: draft.catalog,
            litellm: draft.litellm.clone(),
            digest: draft.digest.clone(),
            bytes: draft.bytes,
        });
        self.default = Some(self.next);
        self.next += 1;
        self.updated = stamp.now.max(self.updated);
    }

    /// A version by number.
    pub fn version(&self, number: u32) -> Option<&Version> {
        self.versions.iter().find(|version| version.number == number)
    }

    /// The version with the highest number.
    pub fn latest(&self) -> Option<&Version> {
        self.versions.last()
    }

    /// The version that is served where none is named.
    pub fn served(&self) -> Option<&Version> {
        self.version(self.default?)
    }

    /// The version that an API's word names: `latest`, a number, an id, or the time of its making in microseconds.
    pub fn named(&self, word: &str) -> Option<&Version> {
        if word == "latest" {
            return self.latest();
        }
        let number: Option<i64> = word.parse().ok();
        self.versions.iter().find(|version| {
            version.id == word || number.is_some_and(|n| n == i64::from(version.number) || n == version.created)
        })
    }

    /// Every reference under which requests may name a version of this skill: its id with each word of the version.
    pub fn references(&self, version: &Version) -> Vec<String> {
        let words = [
            version.number.to_string(),
            version.id.clone(),
            version.created.to_string(),
        ];
        let mut all: Vec<String> = words.iter().map(|word| versioned(&self.id, word)).collect();
        if self.latest() == Some(version) {
            all.push(versioned(&self.id, "latest"));
        }
        if self.default == Some(version.number) {
            all.extend([self.id.clone(), litellm_id(&self.id)]);
        }
        all
    }

    /// Bytes of all versions.
    pub fn bytes(&self) -> u64 {
        self.versions.iter().map(|version| version.bytes).sum()
    }
}

/// Bits of a UUID of version 7 behind its milliseconds: version, variant and what is random.
const RANDOM_BITS: u32 = 80;

/// An id of a version that sorts behind the one before it, as pages of versions ask for: this one, or, where another clock was
/// ahead, this one in the millisecond after that of the last. What is random of it stays its own.
fn behind(last: &str, id: &str) -> String {
    let (Ok(before), Ok(own)) = (Uuid::try_parse(last), Uuid::try_parse(id)) else {
        return id.to_owned();
    };
    if own > before {
        return id.to_owned();
    }
    let millisecond = (before.as_u128() >> RANDOM_BITS).wrapping_add(1);
    let random = own.as_u128() & ((1 << RANDOM_BITS) - 1);
    Uuid::from_u128((millisecond << RANDOM_BITS) | random)
        .simple()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(name: &str) -> Draft {
        Draft {
            bytes: 3,
            ..crate::fixture::draft(name, crate::Files::new())
        }
    }

    fn stamp(now: i64) -> Stamp {
        Stamp {
            now,
            skill: "s".to_owned(),
            version: format!("v{now}"),
        }
    }

    #[test]
    fn versions_count_up_and_the_default_follows_only_where_it_must() {
        let one = SkillEntry::new(Owner::from([1; 32]), None, &draft("a"), &stamp(10));
        assert_eq!((one.default, one.bytes()), (Some(1), 3));
        let kept = one.with_version(&draft("a"), false, &stamp(10)).unwrap();
        assert_eq!((kept.default, kept.latest().unwrap().number), (Some(1), 2));
        assert_eq!(kept.latest().unwrap().created, 11, "no two versions of one time");
        let moved = one.with_version(&draft("a"), true, &stamp(5)).unwrap();
        assert_eq!((moved.default, moved.updated), (Some(2), 10));
        let back = moved.without_version(2, 12).unwrap();
        assert_eq!(back.default, Some(1));
        let again = back.with_version(&draft("a"), true, &stamp(13)).unwrap();
        assert_eq!(again.default, Some(3), "a number is used once");
        let none = one.without_version(1, 12).unwrap();
        assert_eq!((none.default, none.latest()), (None, None));
        assert_eq!(
            none.with_version(&draft("a"), false, &stamp(14)).unwrap().default,
            Some(2),
            "the first version there is becomes the default"
        );
        assert!(matches!(
            one.with_version(&draft("b"), true, &stamp(1)),
            Err(StoreError::OtherName { .. })
        ));
        assert!(matches!(one.with_default(7, 1), Err(StoreError::NotFound)));
    }

    /// Pages of versions are in the order of their ids, and the clocks of two replicas differ.
    #[test]
    fn the_id_of_a_version_is_behind_that_of_the_one_before_it() {
        let of = |version: &str| Stamp {
            version: version.to_owned(),
            ..stamp(10)
        };
        let late = "0199a7c4a3cd7fffbfffffffffffffff";
        let mut entry = SkillEntry::new(Owner::from([1; 32]), None, &draft("a"), &of(late));
        for early in [
            "0199a7c4a3cc7d53a0f6f0c1f9a2b3c4",
            "0199a7c4a3cc7d53a0f6f0c1f9a2b3c5",
            late,
        ] {
            entry = entry.with_version(&draft("a"), true, &of(early)).unwrap();
        }
        let mut page = crate::Page {
            after: None,
            limit: 1,
            newest_first: false,
        };
        let mut numbers = Vec::new();
        loop {
            let paged = crate::Paged::of(entry.versions.iter(), &page, |version| &version.id);
            let last = paged.items.last().unwrap();
            assert!(Uuid::try_parse(&last.id[VERSION_PREFIX.len()..]).is_ok_and(|id| id.get_version_num() == 7));
            numbers.push(last.number);
            page.after = Some(last.id.clone());
            if !paged.more {
                break;
            }
        }
        assert_eq!(numbers, [1, 2, 3, 4]);
    }

    #[test]
    fn a_version_is_named_in_the_words_of_every_api() {
        let entry = SkillEntry::new(Owner::from([1; 32]), None, &draft("a"), &stamp(1_759_178_010_641_129));
        for word in ["1", "latest", "skver_knack_v1759178010641129", "1759178010641129"] {
            assert_eq!(entry.named(word).map(|version| version.number), Some(1), "{word}");
        }
        for word in ["2", "", "v1", "Latest"] {
            assert_eq!(entry.named(word), None, "{word}");
        }
        assert_eq!(entry.references(entry.latest().unwrap()).len(), 6);
    }
}
