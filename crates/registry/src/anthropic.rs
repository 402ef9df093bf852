//! The shapes of Anthropic's Skills API, general and beta. Pure.

use serde_json::{Value, json};

use crate::answer::{ApiOutcome, Refusal, RefusalKind, RepeatRefusal, rfc3339};
use crate::model::{SkillEntry, VERSION_PREFIX, Version};
use crate::page::Page;
use crate::query::{page_limit, parameters};

/// Items of a page that does not say.
const LIMIT_DEFAULT: usize = 20;
/// Items of a page at most.
const LIMIT_MAX: usize = 1000;
/// Items of a page at most in the beta.
const LIMIT_MAX_BETA: usize = 100;
/// How tokens of pages begin; the id of the last item follows.
const PAGE_PREFIX: &str = "page_";
/// Words that names may not hold.
const RESERVED: [&str; 2] = ["anthropic", "claude"];

/// Reads `limit` and `page`. `id`: the skill whose versions are listed; empty: skills are.
pub(crate) fn page(query: Option<&str>, id: &str, beta: bool) -> Result<Page, Refusal> {
    let mut page = Page {
        after: None,
        limit: LIMIT_DEFAULT,
        newest_first: true,
    };
    let most = if beta { LIMIT_MAX_BETA } else { LIMIT_MAX };
    for (key, value) in parameters(query) {
        match key.as_str() {
            "limit" => page.limit = page_limit(&value, &(1..=most))?,
            "page" if !value.is_empty() => {
                let expected = if id.is_empty() {
                    crate::model::ID_PREFIX
                } else {
                    VERSION_PREFIX
                };
                let after = value
                    .strip_prefix(PAGE_PREFIX)
                    .filter(|after| after.starts_with(expected));
                page.after = Some(after.ok_or_else(no_such_page)?.to_owned());
            }
            _ => {}
        }
    }
    Ok(page)
}

/// The refusal of a token that is of no page.
pub(crate) fn no_such_page() -> Refusal {
    Refusal::invalid(
        "page",
        "page: not a next_page value of this list; omit it to start at the first page",
    )
}

pub(crate) fn may_be_named(name: &str) -> Result<(), Refusal> {
    match RESERVED.iter().find(|word| name.contains(**word)) {
        Some(word) => Err(Refusal::invalid(
            "name",
            format!("name: cannot contain the reserved word \"{word}\""),
        )),
        None => Ok(()),
    }
}

pub(crate) fn may_delete_in_beta(entry: &SkillEntry) -> Result<(), Refusal> {
    if entry.versions.is_empty() {
        return Ok(());
    }
    let text = format!(
        "Cannot delete skill {} with existing versions; delete them first.",
        entry.id
    );
    Err(Refusal::invalid("skill_id", text))
}

pub(crate) fn may_delete_version(entry: &SkillEntry) -> Result<(), Refusal> {
    if entry.versions.len() > 1 {
        return Ok(());
    }
    let text = format!("Skill {} has only this version; delete the skill.", entry.id);
    Err(Refusal::invalid("version", text))
}

pub(crate) fn show(outcome: &ApiOutcome, beta: bool) -> Value {
    match outcome {
        ApiOutcome::Skill(entry) => skill(entry, beta),
        ApiOutcome::Version(entry, found) => version(entry, found, beta),
        ApiOutcome::Skills(paged) => {
            let data: Vec<Value> = paged.items.iter().map(|entry| skill(entry, beta)).collect();
            list(&data, paged.more)
        }
        ApiOutcome::Versions(entry, paged) => {
            let data: Vec<Value> = paged.items.iter().map(|found| version(entry, found, beta)).collect();
            list(&data, paged.more)
        }
        ApiOutcome::Deleted(entry) => json!({"id": entry.id, "type": "skill_deleted"}),
        ApiOutcome::VersionDeleted(version) => json!({"id": version.id, "type": "skill_version_deleted"}),
        ApiOutcome::Zip(_) => Value::Null,
    }
}

fn list(data: &[Value], more: bool) -> Value {
    let last = data.last().and_then(|item| item["id"].as_str()).filter(|_| more);
    let next = last.map(|last| format!("{PAGE_PREFIX}{last}"));
    json!({"data": data, "has_more": more, "next_page": next})
}

fn skill(entry: &SkillEntry, beta: bool) -> Value {
    let (created, updated) = (rfc3339(entry.created), rfc3339(entry.updated));
    let latest = entry.latest();
    if beta {
        return json!({
            "id": entry.id, "type": "skill", "display_title": entry.title,
            "latest_version": latest.map(|version| version.created.to_string()),
            "source": "custom", "created_at": created, "updated_at": updated,
        });
    }
    json!({
        "id": entry.id, "type": "skill", "display_name": entry.title.as_ref().unwrap_or(&entry.name),
        "latest_version_id": latest.map(|version| &version.id),
        "source": {"type": "custom"}, "created_at": created, "updated_at": updated,
    })
}

fn version(entry: &SkillEntry, version: &Version, beta: bool) -> Value {
    let created = rfc3339(version.created);
    if beta {
        return json!({
            "id": version.id, "type": "skill_version", "skill_id": entry.id, "version": version.created.to_string(),
            "directory": entry.name, "name": entry.name, "description": version.description, "created_at": created,
        });
    }
    json!({
        "id": version.id, "type": "skill_version", "skill_id": entry.id, "name": entry.name,
        "description": version.description, "created_at": created,
    })
}

pub(crate) fn refuse(refusal: &Refusal, request_id: &str) -> Value {
    let kind = match refusal.kind {
        RefusalKind::Invalid | RefusalKind::NotAllowed(_) | RefusalKind::Late => "invalid_request_error",
        RefusalKind::Conflict | RefusalKind::Repeated(RepeatRefusal::InProgress | RepeatRefusal::OtherRequest) => {
            "conflict_error"
        }
        RefusalKind::Forbidden => "permission_error",
        RefusalKind::Throttled => "rate_limit_error",
        RefusalKind::NoCredential => "authentication_error",
        RefusalKind::NotFound => "not_found_error",
        RefusalKind::TooLarge => "request_too_large",
        RefusalKind::Repeated(RepeatRefusal::TimedOut) => "timeout_error",
        RefusalKind::Full
        | RefusalKind::Failed
        | RefusalKind::Repeated(RepeatRefusal::Failed | RepeatRefusal::Lost)
        | RefusalKind::BadGateway
        | RefusalKind::Unavailable => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": refusal.message}, "request_id": request_id})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded_and_forged_tokens_are_refused() {
        let limit = |query, beta| page(Some(query), "", beta).map(|page| page.limit).ok();
        assert_eq!(page(None, "", false).unwrap().limit, 20);
        for (query, ga, beta) in [
            ("limit=1000", Some(1000), None),
            ("limit=100", Some(100), Some(100)),
            ("limit=0", None, None),
            ("limit=-1", None, None),
            ("limit=x", None, None),
        ] {
            assert_eq!((limit(query, false), limit(query, true)), (ga, beta), "{query}");
        }
        for (token, id, legal) in [
            ("page_skill_knack_1", "", true),
            ("page_skver_knack_1", "", false),
            ("page_skver_knack_1", "skill_knack_1", true),
            ("skill_knack_1", "", false),
            ("page_", "", false),
        ] {
            assert_eq!(
                page(Some(&format!("page={token}")), id, false).is_ok(),
                legal,
                "{token}"
            );
        }
    }

    /// The words that go with a status, as in docs/design/errors.md#words-of-the-formats.
    #[test]
    fn a_status_has_the_word_of_the_format() {
        for (kind, word) in [
            (RefusalKind::Invalid, "invalid_request_error"),
            (RefusalKind::NoCredential, "authentication_error"),
            (RefusalKind::Forbidden, "permission_error"),
            (RefusalKind::NotFound, "not_found_error"),
            (RefusalKind::NotAllowed("GET, HEAD"), "invalid_request_error"),
            (RefusalKind::Late, "invalid_request_error"),
            (RefusalKind::Conflict, "conflict_error"),
            (RefusalKind::Repeated(RepeatRefusal::InProgress), "conflict_error"),
            (RefusalKind::Repeated(RepeatRefusal::OtherRequest), "conflict_error"),
            (RefusalKind::TooLarge, "request_too_large"),
            (RefusalKind::Throttled, "rate_limit_error"),
            (RefusalKind::Failed, "api_error"),
            (RefusalKind::Unavailable, "api_error"),
            (RefusalKind::Repeated(RepeatRefusal::TimedOut), "timeout_error"),
            (RefusalKind::Full, "api_error"),
        ] {
            let body = refuse(&Refusal::new(kind, "", "x"), "req_1");
            assert_eq!(
                (&body["error"]["type"], &body["request_id"]),
                (&json!(word), &json!("req_1")),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339(1_793_491_200_000_000), "2026-11-01T00:00:00Z");
    }
}
