//! The shapes of OpenAI's Skills API. Pure.

use serde_json::{Value, json};

use crate::answer::{ApiOutcome, Refusal, RefusalKind, RepeatRefusal};
use crate::json::read_json;
use crate::model::{ID_PREFIX, SkillEntry, VERSION_PREFIX, Version};
use crate::page::Page;
use crate::query::{page_limit, parameters};

/// Items of a page that does not say.
const LIMIT_DEFAULT: usize = 20;
/// Items of a page at most.
const LIMIT_MAX: usize = 100;

/// Reads `limit`, `order` and `after`. `id`: the skill whose versions are listed; empty: skills are.
pub(crate) fn page(query: Option<&str>, id: &str) -> Result<Page, Refusal> {
    let mut page = Page {
        after: None,
        limit: LIMIT_DEFAULT,
        newest_first: true,
    };
    for (key, value) in parameters(query) {
        match key.as_str() {
            "limit" => page.limit = page_limit(&value, &(0..=LIMIT_MAX))?,
            "order" => {
                page.newest_first = match value.as_str() {
                    "desc" => true,
                    "asc" => false,
                    _ => return Err(Refusal::invalid("order", "order: must be asc or desc")),
                };
            }
            "after" => {
                let expected = if id.is_empty() { ID_PREFIX } else { VERSION_PREFIX };
                if !value.starts_with(expected) {
                    return Err(no_such_item());
                }
                page.after = Some(value);
            }
            _ => {}
        }
    }
    Ok(page)
}

/// The refusal of a page behind what is no item.
pub(crate) fn no_such_item() -> Refusal {
    Refusal::invalid("after", "after: must be the id of an item of this list")
}

/// The form field `default`.
pub(crate) fn makes_default(field: Option<&str>) -> Result<bool, Refusal> {
    match field.map(str::to_ascii_lowercase).as_deref() {
        None | Some("false" | "") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Refusal::invalid("default", "default: must be true or false")),
    }
}

/// The version that the body of an update names.
pub(crate) fn default_version(body: &[u8]) -> Result<String, Refusal> {
    let wrong = || Refusal::invalid("default_version", "send {\"default_version\": \"<number>\"}");
    let body: Value = read_json(body).map_err(|_| wrong())?;
    body.get("default_version")
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(wrong)
}

pub(crate) fn may_delete_version(entry: &SkillEntry, version: &Version) -> Result<(), Refusal> {
    if entry.default != Some(version.number) {
        return Ok(());
    }
    let text = if entry.versions.len() == 1 {
        "This is the only version of the skill; delete the skill."
    } else {
        "This is the default version; make another version the default first."
    };
    Err(Refusal::invalid("version", text))
}

pub(crate) fn show(outcome: &ApiOutcome) -> Value {
    match outcome {
        ApiOutcome::Skill(entry) => skill(entry),
        ApiOutcome::Version(entry, found) => version(entry, found),
        ApiOutcome::Skills(paged) => {
            let data: Vec<Value> = paged.items.iter().map(skill).collect();
            list(&data, paged.more)
        }
        ApiOutcome::Versions(entry, paged) => {
            let data: Vec<Value> = paged.items.iter().map(|found| version(entry, found)).collect();
            list(&data, paged.more)
        }
        ApiOutcome::Deleted(entry) => json!({"id": entry.id, "object": "skill.deleted", "deleted": true}),
        ApiOutcome::VersionDeleted(version) => json!({
            "id": version.id, "object": "skill.version.deleted", "deleted": true, "version": version.number.to_string(),
        }),
        ApiOutcome::Zip(_) => Value::Null,
    }
}

fn list(data: &[Value], more: bool) -> Value {
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first, last) = (id(data.first()), id(data.last()));
    json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more})
}

fn skill(entry: &SkillEntry) -> Value {
    let described = entry.served().or_else(|| entry.latest());
    json!({
        "id": entry.id, "object": "skill", "name": entry.name,
        "description": described.map_or("", |version| &version.description), "created_at": seconds(entry.created),
        "default_version": entry.default.map(|number| number.to_string()),
        "latest_version": entry.latest().map(|version| version.number.to_string()),
    })
}

fn version(entry: &SkillEntry, version: &Version) -> Value {
    json!({
        "id": version.id, "object": "skill.version", "skill_id": entry.id, "version": version.number.to_string(),
        "name": entry.name, "description": version.description, "created_at": seconds(version.created),
    })
}

const fn seconds(micros: i64) -> i64 {
    micros.div_euclid(1_000_000)
}

pub(crate) fn refuse(refusal: &Refusal) -> Value {
    let (kind, code) = match refusal.kind {
        RefusalKind::Invalid | RefusalKind::NotAllowed(_) | RefusalKind::Late => ("invalid_request_error", None),
        RefusalKind::Forbidden => ("invalid_request_error", Some("forbidden")),
        RefusalKind::Throttled => ("requests", Some("rate_limit_exceeded")),
        RefusalKind::Unavailable => ("server_error", Some("unavailable")),
        RefusalKind::NoCredential => ("invalid_request_error", Some("invalid_api_key")),
        RefusalKind::NotFound => ("invalid_request_error", Some("not_found")),
        RefusalKind::Conflict | RefusalKind::Repeated(RepeatRefusal::InProgress | RepeatRefusal::OtherRequest) => {
            ("invalid_request_error", Some("conflict"))
        }
        RefusalKind::TooLarge => ("invalid_request_error", Some("request_too_large")),
        RefusalKind::Full => ("server_error", Some("storage_full")),
        RefusalKind::Failed
        | RefusalKind::Repeated(RepeatRefusal::Failed | RepeatRefusal::Lost | RepeatRefusal::TimedOut)
        | RefusalKind::BadGateway => ("server_error", None),
    };
    let param = Some(&refusal.field).filter(|field| !field.is_empty());
    json!({"error": {"message": refusal.message, "type": kind, "param": param, "code": code}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_either_order_and_within_bounds() {
        let asked = page(Some("limit=0&order=asc&after=skill_knack_1"), "").unwrap();
        assert_eq!(
            (asked.limit, asked.newest_first, asked.after.as_deref()),
            (0, false, Some("skill_knack_1"))
        );
        for query in ["limit=101", "limit=-1", "order=up", "after=skill_1", "after="] {
            assert!(page(Some(query), "").is_err(), "{query}");
        }
        assert!(page(Some("after=skver_knack_1"), "skill_knack_1").is_ok());
    }

    #[test]
    fn a_new_version_is_the_default_only_if_asked() {
        assert_eq!(makes_default(None), Ok(false));
        assert_eq!(makes_default(Some("True")), Ok(true));
        assert!(makes_default(Some("yes")).is_err());
        assert_eq!(default_version(br#"{"default_version":"2"}"#), Ok("2".to_owned()));
        for body in [&b"{}"[..], b"", br#"{"default_version":2}"#] {
            assert!(default_version(body).is_err());
        }
    }
}
