//! The index of skills that a site offers at `/.well-known/agent-skills/index.json`, read and written. Pure.
//!
//! Agent Skills Discovery via Well-Known URIs, version 0.2.0 (docs/skills.md#from-a-site): each skill is one file, a SKILL.md or an
//! archive, with the digest of its bytes.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::Url;

/// Where a site has its index, relative to a folder.
pub const INDEX_PATH: &str = ".well-known/agent-skills/index.json";
/// The `$schema` that is read and written.
const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// Skills of one index.
pub const ENTRIES_MAX: usize = 1_000;

/// The kind of file that a skill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillFileKind {
    /// A lone SKILL.md.
    SkillMd,
    /// A .tar.gz, .tar or .zip with the skill's folder, or its content at the root.
    Archive,
}

impl SkillFileKind {
    /// The word in an index.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SkillMd => "skill-md",
            Self::Archive => "archive",
        }
    }
}

/// Why something is no index: what is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IndexError(String);

/// A skill of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedSkill {
    /// The skill's name.
    pub name: String,
    /// Its description, as the index has it.
    pub description: String,
    /// The kind of file behind the address; `None`: a type that is not known, to be skipped.
    pub kind: Option<SkillFileKind>,
    /// The file's address, resolved against the index.
    pub url: Url,
    /// `sha256:` and 64 hex digits of its bytes.
    pub digest: String,
}

/// A skill to be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The skill's name.
    pub name: String,
    /// The kind of file behind the address.
    pub kind: SkillFileKind,
    /// The skill's description.
    pub description: String,
    /// The file's address; a path is one of the index's own site.
    pub url: String,
    /// Lower-case hex SHA-256 of its bytes.
    pub sha256: String,
}

/// An index that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Its skills, in its order.
    pub skills: Vec<OfferedSkill>,
    /// The entries that cannot be read: one author's mistake takes no other skill away.
    pub skipped: Vec<SkippedEntry>,
}

/// An entry of an index that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("skills[{position}] {name:?}: {why}")]
pub struct SkippedEntry {
    position: usize,
    /// Its name, if it has one.
    pub name: String,
    /// What is wrong.
    pub why: String,
}

#[derive(Deserialize)]
struct IndexDocument<'a> {
    #[serde(rename = "$schema", default)]
    schema: String,
    /// Each is read when the number of all is known.
    #[serde(default, borrow)]
    skills: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct IndexEntry {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    description: Option<String>,
    url: String,
    digest: String,
}

/// The entries of an index that was found at `base`.
///
/// # Errors
///
/// No JSON of this shape, another version, or more than 1,000 entries; what is wrong, and where.
pub fn entries(base: &Url, bytes: &[u8]) -> Result<Index, IndexError> {
    let index: IndexDocument<'_> = serde_json::from_slice(bytes).map_err(|error| {
        invalid(format!(
            "neither an archive nor a SKILL.md, and no index of skills: {error}"
        ))
    })?;
    if index.schema != SCHEMA {
        return Err(invalid(format!(
            "$schema: the index version {:?} is not supported; supported is {SCHEMA:?}. Name the file of a skill itself",
            index.schema
        )));
    }
    if index.skills.len() > ENTRIES_MAX {
        return Err(invalid(format!(
            "skills: {} entries, at most {ENTRIES_MAX}",
            index.skills.len()
        )));
    }
    let (mut skills, mut skipped) = (Vec::new(), Vec::new());
    for (position, written) in index.skills.into_iter().enumerate() {
        let written = serde_json::from_str::<Value>(written.get());
        let name = written.as_ref().ok().and_then(|written| written["name"].as_str());
        let name = name.unwrap_or_default().chars().take(SHOWN_MAX_CHARS).collect();
        match written
            .map_err(|error| error.to_string())
            .and_then(|written| entry(base, written))
        {
            Ok(skill) => skills.push(skill),
            Err(why) => skipped.push(SkippedEntry { position, name, why }),
        }
    }
    Ok(Index { skills, skipped })
}

/// Characters of a text of an entry that are shown.
const SHOWN_MAX_CHARS: usize = 200;

fn entry(base: &Url, written: Value) -> Result<OfferedSkill, String> {
    let shortened = |error: String| error.chars().take(SHOWN_MAX_CHARS).collect::<String>();
    let written: IndexEntry = serde_json::from_value(written).map_err(|error| shortened(error.to_string()))?;
    let IndexEntry {
        name,
        kind,
        description,
        url,
        digest,
    } = written;
    let url = base
        .join(&url)
        .map_err(|error| shortened(format!("url is not valid: {error}: {url:?}")))?;
    let kinds = [SkillFileKind::SkillMd, SkillFileKind::Archive];
    Ok(OfferedSkill {
        name,
        description: description.unwrap_or_default(),
        kind: kinds.into_iter().find(|known| known.as_str() == kind),
        url,
        digest,
    })
}

/// Characters of a description, as installers written in JavaScript count them: in units of UTF-16. They skip a skill with more.
const DESCRIPTION_MAX: usize = 1_024;

/// The text of an index.
pub fn written(offers: &[Offer]) -> String {
    let skill = |offer: &Offer| {
        json!({
            "name": offer.name,
            "type": offer.kind.as_str(),
            "description": shortened(&offer.description),
            "url": offer.url,
            "digest": format!("sha256:{}", offer.sha256),
        })
    };
    let skills: Vec<Value> = offers.iter().map(skill).collect();
    json!({"$schema": SCHEMA, "skills": skills}).to_string()
}

fn shortened(description: &str) -> &str {
    let mut units = 0;
    let end = description.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > DESCRIPTION_MAX
    });
    end.and_then(|(at, _)| description.get(..at)).unwrap_or(description)
}

fn invalid(message: impl Into<String>) -> IndexError {
    IndexError(message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(index: &Value) -> Result<Index, IndexError> {
        let base = "https://example.com/team/.well-known/agent-skills/index.json";
        let base = Url::parse(base).map_err(|error| invalid(error.to_string()))?;
        entries(&base, index.to_string().as_bytes())
    }

    #[test]
    fn addresses_are_resolved_against_the_index() {
        for (written, expected) in [
            (
                "weather.tar.gz",
                "https://example.com/team/.well-known/agent-skills/weather.tar.gz",
            ),
            ("/skills/weather.zip", "https://example.com/skills/weather.zip"),
            ("https://cdn.example.net/w.zip", "https://cdn.example.net/w.zip"),
        ] {
            let index = json!({"$schema": SCHEMA, "skills": [
                {"name": "weather", "type": "archive", "description": "d", "url": written, "digest": "sha256:0"},
            ]});
            let [found] = &read(&index).unwrap().skills[..] else {
                panic!("one entry")
            };
            assert_eq!(
                (found.url.as_str(), found.kind),
                (expected, Some(SkillFileKind::Archive))
            );
        }
    }

    #[test]
    fn unusable_index_is_refused_by_name() {
        let entry = |kind: &str, url: &str| json!({"name": "w", "type": kind, "url": url, "digest": "sha256:0"});
        for (index, part) in [
            (json!({"skills": 1}), "no index of skills"),
            (json!({"skills": []}), "version \"\" is not supported"),
            (
                json!({"$schema": "https://schemas.agentskills.io/discovery/9/schema.json"}),
                "is not supported",
            ),
            (
                json!({"$schema": SCHEMA, "skills": vec![entry("archive", "w.zip"); 1_001]}),
                "1001 entries",
            ),
        ] {
            let error = read(&index).unwrap_err();
            assert!(error.0.contains(part), "{error} should contain {part}");
        }
        let unknown = json!({"$schema": SCHEMA, "skills": [entry("bundle", "w.zip")]});
        assert_eq!(read(&unknown).unwrap().skills[0].kind, None);
    }

    #[test]
    fn an_entry_that_cannot_be_read_takes_no_other_one_away() {
        let good = |name: &str, description: Value| json!({"name": name, "type": "archive", "description": description, "url": "w.zip", "digest": "sha256:0"});
        let index = read(&json!({"$schema": SCHEMA, "skills": [
            good("a", json!("d")),
            {"name": "later", "type": "container"},
            good("b", Value::Null),
            {"name": "w", "type": "archive", "url": "w.zip"},
            {"name": "far", "type": "archive", "url": "https://[", "digest": "sha256:0"},
            7,
            good("c", json!(["d"])),
        ]}));
        let index = index.unwrap();
        let names: Vec<&str> = index.skills.iter().map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let skipped: Vec<String> = index.skipped.iter().map(ToString::to_string).collect();
        for (at, part) in [
            "skills[1] \"later\": missing field",
            "skills[3] \"w\": missing field",
            "skills[4] \"far\": url is not valid",
            "skills[5] \"\": invalid type",
            "skills[6] \"c\": invalid type",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(skipped[at].starts_with(part), "{}", skipped[at]);
        }
        assert_eq!(skipped.len(), 5);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let offer = |name: &str, kind, description: String| Offer {
            name: name.to_owned(),
            kind,
            description,
            url: format!("/.well-known/agent-skills/{name}.zip"),
            sha256: "0".repeat(64),
        };
        let offers = [
            offer("a", SkillFileKind::Archive, "d".to_owned()),
            offer("b", SkillFileKind::SkillMd, "x".repeat(1_023) + "\u{1f3b2}"),
        ];
        let text = written(&offers);
        let value: Value = serde_json::from_str(&text).unwrap();
        let read = read(&value).unwrap().skills;
        for (offer, entry) in offers.iter().zip(&read) {
            assert_eq!((&entry.name, entry.kind), (&offer.name, Some(offer.kind)));
            assert_eq!(entry.url.as_str(), format!("https://example.com{}", offer.url));
            assert_eq!(entry.digest, format!("sha256:{}", offer.sha256));
        }
        assert_eq!(read.len(), 2);
        assert_eq!(value["skills"][0]["description"], "d");
        assert_eq!(
            value["skills"][1]["description"],
            "x".repeat(1_023),
            "a character is not cut"
        );
    }
}
