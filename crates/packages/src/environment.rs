//! Environments of a cluster: what is asked for, and what a builder says of it.
//!
//! ```text
//! Declaration ─▶ Input ─▶ digest (status of a Skill) ─▶ key of a Request, with base image and constraints
//!                   └──────────────── Request ─────────▶ builder ─▶ EnvironmentRecord, by key ─▶ controller and hub
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::declare::{Declaration, Source};
use crate::finding::Finding;
use crate::lock::Lock;
use crate::requirements_txt;
use crate::rules::Rules;
use crate::state::State;

/// Version of what builders make of a request; a change makes every environment anew.
const FORMAT: u32 = 1;

/// Hex digits of a key: 128 bits tell environments apart, and names of objects stay short.
const KEY_DIGITS: usize = 32;

/// What of a declaration decides about an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Requirements, sorted, a line each.
    requirements: String,
    /// The lock in its one form, where there is one.
    lock: Option<String>,
    /// Versions of Python that scripts ask for, by file.
    python: Vec<(String, Vec<(String, String)>)>,
}

impl Input {
    /// The input of a declaration that is not refused.
    pub fn of(declared: &Declaration) -> Self {
        Self {
            // A lock wins over the requirements that it was made from.
            requirements: match declared.lock {
                Some(_) => String::new(),
                None => declared.requirements_text(),
            },
            lock: declared.lock.as_ref().map(|lock| lock.text().to_owned()),
            python: declared.requires_python.clone(),
        }
    }

    /// SHA-256 in hex: equal inputs have equal digests.
    pub fn digest(&self) -> String {
        let mut parts = vec![self.requirements.as_str(), self.lock.as_deref().unwrap_or_default()];
        for (file, clauses) in &self.python {
            parts.push(file.as_str());
            parts.extend(
                clauses
                    .iter()
                    .flat_map(|(operator, version)| [operator.as_str(), version.as_str()]),
            );
        }
        hash(&parts)
    }

    /// What a builder is to install. Errors: this is not what [`Input::of`] made.
    pub fn declaration(&self) -> Result<Declaration, Vec<Finding>> {
        let read = requirements_txt::read("requirements", self.requirements.as_bytes());
        if !read.findings.is_empty() {
            return Err(read.findings);
        }
        let lock = match &self.lock {
            Some(text) if text.is_empty() => Some(Lock::empty()),
            Some(text) => Some(Lock::read("lock", text.as_bytes())?),
            None => None,
        };
        Ok(Declaration {
            source: Source::Requirements("requirements".to_owned()),
            python: read.lines.into_iter().map(|line| line.requirement).collect(),
            lock,
            node: None,
            requires_python: self.python.clone(),
            imports: BTreeMap::new(),
            findings: Vec::new(),
        })
    }
}

/// What a builder is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What is declared.
    pub input: Input,
    /// Constraints of the runtime, as its manifest has them.
    pub constraints: Vec<String>,
    /// The image that the environment is added to, by digest.
    pub base: String,
}

impl Request {
    /// The key. Errors: the constraints cannot be read.
    pub fn key(&self) -> Result<String, String> {
        let rules = Rules::read(&self.constraints, false)?;
        Ok(key(&self.input.digest(), self.input.lock.is_some(), &rules, &self.base))
    }
}

/// What an environment of a cluster is known by: 32 hex digits over what is declared, the base image and, where no lock
/// fixes versions, what the runtime allows. Equal for two skills with one lock at runtimes of one image.
pub fn key(digest: &str, is_locked: bool, rules: &Rules, base: &str) -> String {
    let constraints = if is_locked {
        String::new()
    } else {
        rules.constraints_text()
    };
    let mut key = hash(&[&FORMAT.to_string(), digest, &constraints, base]);
    key.truncate(KEY_DIGITS);
    key
}

fn hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is known of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentRecord {
    /// How it stands.
    pub state: State,
    /// Why, and what to do; for people.
    pub message: String,
    /// The environment, once it is there.
    pub environment: Option<InImage>,
    /// When the state was reached, seconds since the Unix epoch.
    pub since: i64,
    /// When something last asked for it, the same; rounded, so that it changes seldom.
    pub used: i64,
}

/// An environment in an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InImage {
    /// The image, by digest.
    pub image: String,
    /// Its folder there: a virtual environment.
    pub home: String,
}

impl InImage {
    /// Whether a container may be started with it: a digest, and a folder of its own.
    pub fn is_plausible(&self) -> bool {
        let digest = self.image.rsplit_once("@sha256:").map(|(_, digest)| digest);
        digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
            && self.home.starts_with('/')
            && !self.home.split('/').any(|part| part == "..")
            && !self.home.contains([':', '\0', '\n'])
    }
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    state: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    environment: Option<InImage>,
    #[serde(default)]
    since: i64,
    #[serde(default)]
    used: i64,
}

/// The records of an installation, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records(pub BTreeMap<String, EnvironmentRecord>);

impl Records {
    /// Reads them as one process tells another; what cannot be read is passed over.
    pub fn read<'a>(lines: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let read = |text: &str| {
            let written: Written = serde_json::from_str(text).ok()?;
            let state = State::of_word(&written.state)?;
            let environment = written.environment.filter(InImage::is_plausible);
            // Nothing is ready that cannot be started.
            (state != State::Ready || environment.is_some()).then_some(EnvironmentRecord {
                state,
                message: written.message,
                environment,
                since: written.since,
                used: written.used,
            })
        };
        let is_key = |key: &str| key.len() == KEY_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        let known = lines.into_iter().filter(|(key, _)| is_key(key));
        Self(
            known
                .filter_map(|(key, text)| Some((key.clone(), read(text)?)))
                .collect(),
        )
    }

    /// The same as text, a member for each.
    pub fn lines(&self) -> BTreeMap<String, String> {
        let write = |record: &EnvironmentRecord| {
            let written = Written {
                state: record.state.to_string(),
                message: record.message.clone(),
                environment: record.environment.clone(),
                since: record.since,
                used: record.used,
            };
            // Strings and numbers are always written.
            serde_json::to_string(&written).unwrap_or_default()
        };
        self.0
            .iter()
            .map(|(key, record)| (key.clone(), write(record)))
            .collect()
    }

    /// One of them.
    pub fn get(&self, key: &str) -> Option<&EnvironmentRecord> {
        self.0.get(key)
    }
}

#[cfg(test)]
mod tests {
    use knack_skill::model::SkillFile;

    use super::*;
    use crate::declare::stated;

    fn declared(files: &[(&str, &str)]) -> Declaration {
        let file = |text: &str| SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect();
        let declared = stated(&files, None);
        assert!(!declared.is_refused(), "{:?}", declared.findings);
        declared
    }

    fn lock(version: &str) -> String {
        format!("six=={version} --hash=sha256:{}\n", "a".repeat(64))
    }

    #[test]
    fn a_builder_reads_what_was_declared() {
        let script = "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\"six>=1\"]\n# ///\n";
        let locked = lock("1.16");
        for files in [
            &[("requirements.txt", "six>=1 ; python_version > '3'\nmcp[cli]<2\n")][..],
            &[("requirements.txt", "six>=1"), ("requirements.lock", &locked)],
            &[("requirements.lock", &locked)],
            &[("scripts/a.py", script)],
        ] {
            let of_skill = declared(files);
            let input = Input::of(&of_skill);
            let text = serde_json::to_string(&input).unwrap();
            let read: Input = serde_json::from_str(&text).unwrap();
            let built = read.declaration().unwrap();
            assert_eq!(built.lock, of_skill.lock, "{files:?}");
            assert_eq!(built.requires_python, of_skill.requires_python);
            if built.lock.is_none() {
                assert_eq!(built.requirements_text(), of_skill.requirements_text());
            }
            assert_eq!(Input::of(&built).digest(), input.digest(), "{files:?}");
        }
    }

    #[test]
    fn a_key_changes_with_what_decides_and_with_nothing_else() {
        let key = |files: &[(&str, &str)], constraints: &[&str], base: &str| {
            let request = Request {
                input: Input::of(&declared(files)),
                constraints: constraints.iter().map(|text| (*text).to_owned()).collect(),
                base: base.to_owned(),
            };
            request.key().unwrap()
        };
        let (one, other) = (lock("1.16"), lock("1.17"));
        let open = [("requirements.txt", "six>=1")];
        let locked = [("requirements.lock", one.as_str())];
        let base = key(&locked, &[], "img@sha256:a");
        assert_eq!(base.len(), 32);
        for (what, same, found) in [
            (
                "a comment in the lock",
                true,
                key(&[("requirements.lock", &format!("# x\n{one}"))], &[], "img@sha256:a"),
            ),
            (
                "what the lock was made from",
                true,
                key(&[open[0], locked[0]], &[], "img@sha256:a"),
            ),
            (
                "constraints where a lock decides",
                true,
                key(&locked, &["six<2"], "img@sha256:a"),
            ),
            (
                "another version",
                false,
                key(&[("requirements.lock", &other)], &[], "img@sha256:a"),
            ),
            ("another base", false, key(&locked, &[], "img@sha256:b")),
            ("no lock", false, key(&open, &[], "img@sha256:a")),
        ] {
            assert_eq!(found == base, same, "{what}");
        }
        let free = key(&open, &[], "img@sha256:a");
        assert_ne!(
            free,
            key(&open, &["six<2"], "img@sha256:a"),
            "constraints choose versions"
        );
        assert_eq!(
            free,
            key(&[("requirements.txt", "# x\nsix >= 1\n")], &[], "img@sha256:a")
        );
    }

    #[test]
    fn records_are_read_as_they_are_written_and_nothing_else_is() {
        let key = "a".repeat(32);
        let record = |state, image: Option<&str>| EnvironmentRecord {
            state,
            message: "why \"image\"".to_owned(),
            environment: image.map(|image| InImage {
                image: image.to_owned(),
                home: "/opt/knack/packages/env-1".to_owned(),
            }),
            since: 7,
            used: 8,
        };
        let digest = format!("r.example:5000/x@sha256:{}", "b".repeat(64));
        for (record, is_read) in [
            (record(State::Ready, Some(&digest)), true),
            (record(State::NoWheel, None), true),
            (record(State::Ready, None), false),
            (record(State::Ready, Some("r.example/x:latest")), false),
        ] {
            let records = Records(BTreeMap::from([(key.clone(), record)]));
            let read = Records::read(&records.lines());
            assert_eq!(read == records, is_read, "{records:?}");
            assert!(is_read || read.0.is_empty());
        }
        for (key, text) in [
            ("a", "{\"state\":\"Failed\"}"),
            (key.as_str(), "{\"state\":\"x\"}"),
            (key.as_str(), "{"),
        ] {
            let lines = BTreeMap::from([(key.to_owned(), text.to_owned())]);
            assert_eq!(Records::read(&lines), Records::default(), "{text}");
        }
        for home in ["relative", "/a/../etc", "/a:b"] {
            let bad = InImage {
                image: digest.clone(),
                home: home.to_owned(),
            };
            assert!(!bad.is_plausible(), "{home}");
        }
    }
}
