//! `"dryRun": true` in the body of an install: what it would change, and nothing is kept.
//!
//! The checks are those of the install, and so are their errors; what is compared is what a model would get.

use serde_json::{Map, Value, json};

use super::caller_skills::CallerSkills;
use super::install::Installation;
use super::rows::refused;
use crate::Files;
use crate::answer::{Refusal, RefusalKind};
use crate::check::load_stored;
use crate::difference::{Difference, FileChange, ModelView};
use crate::json::read_json;
use crate::mode::Mode;
use crate::model::{SkillEntry, Stamp, Version};
use crate::reader::Reader;

/// The member of the body. In the body and not in the query, since a registry that does not know it then refuses it, and installs
/// nothing.
const DRY_RUN: &str = "dryRun";
/// Bytes of a diff that are shown: a new SKILL.md alone may have 1 MiB, and no person reads that.
const DIFF_MAX_BYTES: usize = 256 << 10;

/// The body of an install.
#[derive(Debug)]
pub(super) struct InstallBody {
    /// The members that say what is installed.
    pub(super) members: Map<String, Value>,
    /// Whether nothing is kept.
    pub(super) is_dry_run: bool,
}

impl InstallBody {
    /// Reads a body. Errors name what is wrong.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let body: Value = read_json(body).map_err(|error| Refusal::invalid("body", error.to_string()))?;
        let Value::Object(mut members) = body else {
            return Err(Refusal::invalid("body", "must be a JSON object"));
        };
        let is_dry_run = match members.remove(DRY_RUN) {
            None => false,
            Some(Value::Bool(is_dry_run)) => is_dry_run,
            Some(_) => return Err(Refusal::invalid(DRY_RUN, "must be true or false")),
        };
        Ok(Self { members, is_dry_run })
    }
}

/// What an install would change. `found`: the skill that would get one more version.
pub(super) async fn preview(
    skills: CallerSkills<'_>,
    reader: &Reader,
    found: Option<SkillEntry>,
    new: Installation,
) -> Result<Value, Refusal> {
    let CallerSkills { store, owner, .. } = skills;
    let Installation { title, draft } = new;
    let refuse = |error| refused(error, &draft.name);
    let id = found.as_ref().map(|entry| entry.id.clone());
    store.would_keep(owner, id.as_deref(), &draft).await.map_err(refuse)?;
    let stamp = Stamp::of_now();
    let entry = match &found {
        None => SkillEntry::new(owner.clone(), title, &draft, &stamp),
        Some(entry) => entry.with_version(&draft, true, &stamp).map_err(refuse)?,
    };
    let old = found.and_then(|entry| {
        let version = entry.served()?.clone();
        Some((entry, version))
    });
    let old_files = match &old {
        None => Files::new(),
        Some((entry, version)) => {
            let files = store.content(owner, &entry.id, version.number).await;
            files.map_err(|error| refused(error, &entry.id))?
        }
    };
    let version = entry.served().cloned().ok_or_else(|| {
        let text = "the new version would not be served";
        Refusal::new(RefusalKind::Failed, "", text)
    })?;
    let work = move || {
        let new = (entry, version);
        let compared = compared(old.as_ref().map(|old| (old, old_files)), (&new, draft.files))?;
        let mut shown = shown(old.as_ref(), &new, &compared);
        shown["id"] = id.into();
        Ok(shown)
    };
    reader.aside(work).await
}

/// A skill in a version.
type StoredVersion = (SkillEntry, Version);

/// What a model gets before and after, and what differs.
struct Comparison {
    before: ModelView,
    after: ModelView,
    difference: Difference,
}

fn compared(
    old: Option<(&StoredVersion, Files)>,
    (new, files): (&StoredVersion, Files),
) -> Result<Comparison, Refusal> {
    let failed = |why: String| Refusal::new(RefusalKind::Failed, "", why);
    let before = match old {
        None => ModelView::default(),
        Some(((entry, version), files)) => match load_stored(entry, version, files.clone()).map(ModelView::of) {
            Ok(Ok(seen)) => seen,
            // Of an earlier build, which this one does not serve.
            Ok(Err(_)) | Err(_) => ModelView::unserved(files),
        },
    };
    let (entry, version) = new;
    let after = load_stored(entry, version, files).map_err(failed)?;
    let after = ModelView::of(after).map_err(|error| failed(error.to_string()))?;
    let difference = Difference::between(&before, &after);
    Ok(Comparison {
        before,
        after,
        difference,
    })
}

fn shown(old: Option<&StoredVersion>, new: &StoredVersion, compared: &Comparison) -> Value {
    let both = |of: &dyn Fn(&StoredVersion) -> Value| json!({"from": old.map(of), "to": of(new)});
    let mode = |(entry, version): &StoredVersion| json!(entry.mode_of(version).unwrap_or(Mode::Auto));
    let [before, after] = [compared.before.tokens(), compared.after.tokens()];
    let tokens = |at: usize| json!({"from": before[at], "to": after[at]});
    let paths = |is_of: &dyn Fn(&FileChange) -> bool| -> Vec<&str> {
        let files = compared.difference.files.iter();
        files
            .filter(|(_, change)| is_of(change))
            .map(|(path, _)| path.as_str())
            .collect()
    };
    let diff = compared.difference.to_string();
    let cut = diff.floor_char_boundary(DIFF_MAX_BYTES);
    json!({
        "success": true,
        "dryRun": true,
        "change": if old.is_some() { "update" } else { "create" },
        "name": new.0.name,
        "version": both(&|(_, version)| json!(version.version)),
        "digest": both(&|(_, version)| json!(version.digest)),
        "mode": both(&mode),
        "tokens": {"everyRequest": tokens(0), "loaded": tokens(1)},
        "files": {
            "added": paths(&|change| matches!(change, FileChange::Added(_))),
            "changed": paths(&|change| matches!(change, FileChange::Content(..) | FileChange::Mode(_))),
            "removed": paths(&|change| *change == FileChange::Removed),
        },
        "diff": diff.get(..cut),
        "diffTruncated": cut < diff.len(),
    })
}
