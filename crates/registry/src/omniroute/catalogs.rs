//! Search and install from a catalog: `/api/skills/marketplace` (SkillsMP) and `/api/skills/skillssh` (skills.sh).
//!
//! What is installed is the SKILL.md alone, as it is at that moment, in the mode `auto`; it belongs to whoever installs it.

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::install::{Installation, Installed};
use crate::answer::{Refusal, RefusalKind};
use crate::catalogs::{CATALOG_FETCH_MAX_BYTES, Catalog, Catalogs, WebError};
use crate::query::parameters;

/// Skills of a search where the query does not say.
const LIMIT_DEFAULT: usize = 20;
/// Skills of a search at most.
const LIMIT_MAX: usize = 100;
/// Characters of a search.
const TEXT_MAX: usize = 256;

/// How many skills a search of skills.sh has: 1 to 100; 20 where it says nothing, 0, or no number.
pub fn search_limit(query: Option<&str>) -> usize {
    let said = parameters(query).find(|(key, _)| key == "limit");
    let number = said.and_then(|(_, value)| value.parse::<i64>().ok());
    match number.filter(|number| *number != 0) {
        None => LIMIT_DEFAULT,
        Some(number) => usize::try_from(number).unwrap_or(1).clamp(1, LIMIT_MAX),
    }
}

/// Refuses to install from a catalog that is not the active one.
fn may_install(active: Catalog, from: Catalog) -> Result<(), Refusal> {
    if active == from {
        return Ok(());
    }
    let (active, from) = (active.word(), from.word());
    let text = format!(
        "skills are installed from {active} here, not from {from}; start with --catalog {from}, or install from {active}"
    );
    Err(Refusal::new(RefusalKind::Conflict, "", text))
}

/// What a search finds.
pub(super) async fn search(
    catalogs: Option<&Catalogs>,
    catalog: Catalog,
    query: Option<&str>,
) -> Result<Value, Refusal> {
    let catalogs = catalogs.ok_or_else(none)?;
    let text = parameters(query).find(|(key, _)| key == "q");
    let text = text.map_or_else(String::new, |(_, value)| {
        let spaced = value.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().trim().to_owned()
    });
    if text.is_empty() {
        // OmniRoute shows names that it calls popular; here is nobody who could say which are.
        return Ok(json!({"skills": []}));
    }
    if text.chars().count() > TEXT_MAX {
        return Err(Refusal::invalid("q", format!("at most {TEXT_MAX} characters")));
    }
    if catalog == Catalog::SkillsMp && !(catalogs.has_key && catalogs.active == catalog) {
        let text = "SkillsMP asks for a key, and there is none; start with --catalog skillsmp and the key in the variable \
            that --catalog-key-env names";
        return Err(Refusal::invalid("", text));
    }
    let address = catalogs.search(catalog, &text, search_limit(query));
    let found = catalogs.web.get(&address).await;
    let found = found.map_err(|error| unreachable(catalog, &error))?;
    let skills = listed(catalog, &found).ok_or_else(|| {
        let error = WebError::Failed("its list of skills cannot be read".to_owned());
        unreachable(catalog, &error)
    })?;
    Ok(json!({"skills": skills}))
}

/// The skills of a found list, at most [`LIMIT_MAX`]. `None`: it is no such list.
fn listed(catalog: Catalog, found: &Bytes) -> Option<Vec<Value>> {
    if found.len() > CATALOG_FETCH_MAX_BYTES {
        return None;
    }
    let mut found: Value = serde_json::from_slice(found).ok()?;
    let skills = ["/data/skills", "/skills"].into_iter().find_map(|place| {
        let list = found.pointer_mut(place)?.as_array_mut()?;
        Some(std::mem::take(list))
    })?;
    let objects = skills.into_iter().filter(Value::is_object).take(LIMIT_MAX);
    Some(match catalog {
        // As it comes: what OmniRoute's clients know of it.
        Catalog::SkillsMp => objects.collect(),
        Catalog::SkillsSh => objects
            .map(|skill| {
                let members = ["id", "skillId", "name", "installs", "source"];
                members
                    .iter()
                    .map(|member| ((*member).to_owned(), skill[*member].clone()))
                    .collect()
            })
            .collect(),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfSkillsSh {
    name: String,
    description: String,
    source: String,
    skill_id: String,
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfSkillsMp {
    name: String,
    description: String,
    skill_md_content: String,
    version: Option<String>,
    /// Noted by OmniRoute's dashboard, and shown nowhere.
    #[serde(rename = "sourceUrl")]
    _source_url: Option<String>,
}

/// Reads an install, and fetches its SKILL.md where the body does not have it.
pub(super) async fn installation(
    catalogs: Option<&Catalogs>,
    catalog: Catalog,
    body: &[u8],
) -> Result<Installation, Refusal> {
    let catalogs = catalogs.ok_or_else(none)?;
    may_install(catalogs.active, catalog)?;
    let (name, description, version, document) = match catalog {
        Catalog::SkillsMp => {
            let OfSkillsMp {
                name,
                description,
                skill_md_content,
                version,
                _source_url: _,
            } = read(body)?;
            (name, description, version, skill_md_content)
        }
        Catalog::SkillsSh => {
            let OfSkillsSh {
                name,
                description,
                source,
                skill_id,
                version,
            } = read(body)?;
            let address = catalogs.skill_md(&source, &skill_id);
            let address = address.map_err(|(field, text)| Refusal::invalid(field, text))?;
            let found = catalogs.web.get(&address).await;
            let found = found.map_err(|error| match error {
                WebError::NotFound => {
                    let text = format!("{source} has no skills/{skill_id}/SKILL.md on its branch main");
                    Refusal::new(RefusalKind::NotFound, "skillId", text)
                }
                error @ WebError::Failed(_) => unreachable(catalog, &error),
            })?;
            let document = String::from_utf8(found.to_vec());
            let document = document.map_err(|_| Refusal::invalid("skillId", "its SKILL.md is not UTF-8"))?;
            (name, description, version, document)
        }
    };
    Installation::of_document(Installed {
        name,
        description,
        version,
        document,
        catalog,
    })
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid("body", error.to_string()))
}

fn none() -> Refusal {
    let text = "There is no catalog here to install from; an administrator can name one (knack registry --catalog, in the chart \
                registry.catalog.name).";
    Refusal::new(RefusalKind::NotFound, "", text)
}

fn unreachable(catalog: Catalog, error: &WebError) -> Refusal {
    tracing::warn!(catalog = catalog.word(), %error, "a catalog of skills did not answer");
    let text = format!(
        "The catalog {} did not answer as it should; the log of the registry has the cause.",
        catalog.word()
    );
    Refusal::new(RefusalKind::BadGateway, "", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_the_shapes_of_both_catalogs() {
        let read = |catalog, text: &str| listed(catalog, &Bytes::copy_from_slice(text.as_bytes())).map(Value::from);
        let mp = r#"{"success": true, "data": {"skills": [{"id": "1", "name": "a", "githubUrl": "u"}, 7]}}"#;
        assert_eq!(
            read(Catalog::SkillsMp, mp),
            Some(json!([{"id": "1", "name": "a", "githubUrl": "u"}]))
        );
        assert_eq!(read(Catalog::SkillsMp, r#"{"skills": []}"#), Some(json!([])));
        let sh =
            r#"{"skills": [{"id": "a/b/c", "skillId": "c", "name": "C", "installs": 3, "source": "a/b", "x": 1}]}"#;
        let expected = json!([{"id": "a/b/c", "skillId": "c", "name": "C", "installs": 3, "source": "a/b"}]);
        assert_eq!(read(Catalog::SkillsSh, sh), Some(expected));
        for text in ["", "[]", "{}", r#"{"skills": {}}"#, "<html>"] {
            assert_eq!(read(Catalog::SkillsSh, text), None, "{text}");
        }
        let many = json!({"skills": vec![json!({"id": "x"}); 200]}).to_string();
        let many = read(Catalog::SkillsSh, &many).unwrap();
        assert_eq!(many.as_array().map(Vec::len), Some(LIMIT_MAX));
        assert_eq!(
            read(
                Catalog::SkillsSh,
                &format!("{{\"skills\": [{}]}}", " ".repeat(CATALOG_FETCH_MAX_BYTES))
            ),
            None
        );
    }
}
