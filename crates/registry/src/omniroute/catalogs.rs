//! Search and install from a catalog: `/api/skills/marketplace` (SkillsMP), `/api/skills/skillssh` (skills.sh) and
//! `/api/skills/index` ([`super::indexed`]).
//!
//! What is installed is the skill as it is at that moment, of the first two its SKILL.md alone, in the mode `auto`; it belongs to the
//! caller who installs it.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::indexed::{self, IndexedSkill};
use super::install::{CatalogSkill, Installation, demand_known};
use super::unreachable::unreachable;
use crate::answer::{Refusal, RefusalKind};
use crate::catalogs::{CATALOG_FETCH_MAX_BYTES, Catalog, Catalogs, WebError};
use crate::json::read_json;
use crate::query::parameters;
use crate::reader::Reader;

/// Skills of a search where the query does not say.
const LIMIT_DEFAULT: usize = 20;
/// Skills of a search at most.
const LIMIT_MAX: usize = 100;
/// Characters of a search.
const TEXT_MAX: usize = 256;

/// How many skills a search of skills.sh has: 1 to 100; 20 where it says nothing, 0, or no number.
pub(super) fn search_limit(query: Option<&str>) -> usize {
    let limit = parameters(query).find(|(key, _)| key == "limit");
    let number = limit.and_then(|(_, value)| {
        // As JavaScript reads a decimal number: `1e2` and ` 7` are some, and the words of infinity are not a limit.
        let text = value.trim();
        let is_number = !text.contains(|character: char| character.is_ascii_alphabetic() && !"eE".contains(character));
        text.parse::<f64>().ok().filter(|number| is_number && *number != 0.0)
    });
    let Some(number) = number else {
        return LIMIT_DEFAULT;
    };
    // The largest limit that is not above it.
    let limits = (1_u8..).zip(1..=LIMIT_MAX);
    limits
        .take_while(|(limit, _)| f64::from(*limit) <= number)
        .last()
        .map_or(1, |(_, limit)| limit)
}

/// The catalogs to install from one of them. Errors: there are none, or that one is not the active one.
pub(super) fn to_install_from(catalogs: Option<&Catalogs>, from: Catalog) -> Result<&Catalogs, Refusal> {
    let catalogs = catalogs.ok_or_else(none)?;
    if catalogs.active == from {
        return Ok(catalogs);
    }
    let (active, from) = (catalogs.active.word(), from.word());
    let text = format!(
        "skills are installed from {active} here, not from {from}; start with --catalog {from}, or install from {active}"
    );
    Err(Refusal::new(RefusalKind::Conflict, "", text))
}

/// The results of a search.
pub(super) async fn search(
    catalogs: Option<&Catalogs>,
    catalog: Catalog,
    query: Option<&str>,
) -> Result<Value, Refusal> {
    let catalogs = catalogs.ok_or_else(none)?;
    let text = parameters(query).find(|(key, _)| key == "q");
    let text = text.map_or_else(String::new, |(_, value)| value.trim().to_owned());
    if text.is_empty() && catalog != Catalog::Index {
        // OmniRoute lists names that it calls popular; no such figures exist here.
        return Ok(json!({"skills": []}));
    }
    if text.chars().count() > TEXT_MAX {
        return Err(Refusal::invalid(
            "q",
            format!("must have at most {TEXT_MAX} characters"),
        ));
    }
    if catalog == Catalog::SkillsMp && !(catalogs.has_key && catalogs.active == catalog) {
        let text = "SkillsMP is searched only where skills are installed from it, and with an API key; start with --catalog skillsmp \
            and the key in the variable SKILLSMP_API_KEY, or in the one that --catalog-key-env names";
        return Err(Refusal::invalid("", text));
    }
    if catalog == Catalog::Index {
        let catalogs = to_install_from(Some(catalogs), catalog)?;
        let skills = indexed::search(catalogs, &text, search_limit(query)).await?;
        return Ok(json!({"skills": skills}));
    }
    let address = catalogs.search(catalog, &text, search_limit(query));
    let found = catalogs.web.get(&address).await;
    let found = found.map_err(|error| unreachable(catalog, &address, &error))?;
    let skills = listed(catalog, &found).ok_or_else(|| {
        let error = WebError::Failed("its list of skills cannot be read".to_owned());
        unreachable(catalog, &address, &error)
    })?;
    Ok(json!({"skills": skills}))
}

/// The skills of a found list, at most [`LIMIT_MAX`]. `None`: it is no such list.
fn listed(catalog: Catalog, found: &Bytes) -> Option<Vec<Value>> {
    if found.len() > CATALOG_FETCH_MAX_BYTES {
        return None;
    }
    let mut found: Value = read_json(found).ok()?;
    let skills = ["/data/skills", "/skills"].into_iter().find_map(|place| {
        let list = found.pointer_mut(place)?.as_array_mut()?;
        Some(std::mem::take(list))
    })?;
    let objects = skills.into_iter().filter(Value::is_object).take(LIMIT_MAX);
    Some(match catalog {
        // As it comes: what OmniRoute's clients know of it.
        Catalog::SkillsMp | Catalog::Index => objects.collect(),
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

/// Members of an install from SkillsMP: those that must be there, and the others. `sourceUrl` is noted by OmniRoute's
/// dashboard, and shown nowhere.
const OF_SKILLSMP: ([&str; 3], [&str; 2]) = (["name", "description", "skillMdContent"], ["version", "sourceUrl"]);
/// The required and the optional members of an install from skills.sh. `digest`: that of the files which were reviewed, as a dry run shows it.
const OF_SKILLSSH: ([&str; 4], [&str; 2]) = (["name", "description", "source", "skillId"], ["version", "digest"]);

/// The required and the optional members of an install from an index. `digest`: that of the file which was reviewed, as a search shows it.
const OF_INDEX: ([&str; 1], [&str; 2]) = (["name"], ["version", "digest"]);

/// Reads an install, and fetches its SKILL.md where the body does not have it.
pub(super) async fn installation(
    reader: &Reader,
    catalogs: &Catalogs,
    catalog: Catalog,
    body: &Map<String, Value>,
) -> Result<Installation, Refusal> {
    let (name, description, version, document, reviewed) = match catalog {
        Catalog::Index => {
            let (must, may) = OF_INDEX;
            let ([name], [version, reviewed]) = read(body, must, may)?;
            let wanted = IndexedSkill {
                name,
                version,
                reviewed,
            };
            return wanted.installation(reader, catalogs).await;
        }
        Catalog::SkillsMp => {
            let (must, may) = OF_SKILLSMP;
            let ([name, description, document], [version, _]) = read(body, must, may)?;
            (name, description, version, document, None)
        }
        Catalog::SkillsSh => {
            let (must, may) = OF_SKILLSSH;
            let ([name, description, source, skill_id], [version, reviewed]) = read(body, must, may)?;
            let address = catalogs.skill_md(&source, &skill_id);
            let address = address.map_err(|(field, text)| Refusal::invalid(field, text))?;
            let found = catalogs.web.get(&address).await;
            let found = found.map_err(|error| match error {
                WebError::NotFound => {
                    let text = format!("{source} has no skills/{skill_id}/SKILL.md on its branch main");
                    Refusal::new(RefusalKind::NotFound, "skillId", text)
                }
                error @ WebError::Failed(_) => unreachable(catalog, &address, &error),
            })?;
            let document = String::from_utf8(found.to_vec());
            let document = document.map_err(|_| Refusal::invalid("skillId", "its SKILL.md is not UTF-8"))?;
            (name, description, version, document, reviewed)
        }
    };
    let new = Installation::of_document(CatalogSkill {
        name,
        description,
        version,
        document,
        catalog,
    })?;
    if reviewed.is_some_and(|reviewed| reviewed != new.draft.digest) {
        let (name, digest) = (&new.draft.name, &new.draft.digest);
        let text = format!("the catalog now has different files for {name}, with digest {digest}");
        return Err(Refusal::new(RefusalKind::Conflict, "digest", text));
    }
    Ok(new)
}

/// The texts of a body, by the names of its members. Errors name the one that is wrong.
fn read<const MUST: usize, const MAY: usize>(
    members: &Map<String, Value>,
    must: [&str; MUST],
    may: [&str; MAY],
) -> Result<([String; MUST], [Option<String>; MAY]), Refusal> {
    let known: Vec<&str> = must.iter().chain(&may).copied().collect();
    demand_known(members, &known)?;
    let wrong = known.iter().find(|name| match members.get(**name) {
        None | Some(Value::Null) => must.contains(*name),
        Some(value) => !value.is_string(),
    });
    if let Some(wrong) = wrong {
        return Err(Refusal::invalid(wrong, "must be a string"));
    }
    let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok((must.map(|name| text(name).unwrap_or_default()), may.map(text)))
}

fn none() -> Refusal {
    let text = "No catalog is configured to install from; an administrator can set one (knack registry --catalog, in the chart \
                registry.catalog.name).";
    Refusal::new(RefusalKind::NotFound, "", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_has_1_to_100_skills() {
        for (query, expected) in [
            ("", 20),
            ("limit=0", 20),
            ("limit=many", 20),
            ("limit=-5", 1),
            ("limit=1", 1),
            ("limit=100", 100),
            ("limit=101", 100),
            ("limit=99999999999999999999", 100),
            ("limit=1e2", 100),
            ("limit=99.0", 99),
            ("limit=%207", 7),
            ("limit=0.5", 1),
            ("limit=inf", 20),
            ("limit=", 20),
            ("limit=-99999999999999999999", 1),
        ] {
            assert_eq!(search_limit(Some(query)), expected, "{query}");
        }
    }

    #[test]
    fn the_member_of_an_install_that_is_wrong_is_named() {
        for (body, field) in [
            (json!({}), "name"),
            (
                json!({"name": "a", "description": 5, "skillMdContent": "x"}),
                "description",
            ),
            (json!({"name": "a", "description": "b"}), "skillMdContent"),
            (
                json!({"name": "a", "description": "b", "skillMdContent": null}),
                "skillMdContent",
            ),
            (
                json!({"name": "a", "description": "b", "skillMdContent": "x", "version": 1}),
                "version",
            ),
            (
                json!({"name": "a", "description": "b", "skillMdContent": "x", "tags": []}),
                "tags",
            ),
        ] {
            let (must, may) = OF_SKILLSMP;
            let refused = read(body.as_object().unwrap(), must, may).unwrap_err();
            assert_eq!((refused.kind, &*refused.field), (RefusalKind::Invalid, field), "{body}");
        }
        let body = json!({"name": "a", "description": "b", "skillMdContent": "x", "version": null});
        let (must, may) = OF_SKILLSMP;
        let (texts, others) = read(body.as_object().unwrap(), must, may).unwrap();
        assert_eq!((texts.map(|text| text.len()), others), ([1, 1, 1], [None, None]));
    }

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
