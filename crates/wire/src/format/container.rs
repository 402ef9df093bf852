//! The request member `container`: the skills it names, and taking out what is served here.
//!
//! Messages has it natively. LiteLLM clients send it with Chat Completions as well, where it never goes upstream with Knack's ids,
//! and goes out whole where they are all that it names.

use std::borrow::Cow;

use crate::json::{self, Edits, Span, ValueKind};
use crate::own_files::is_own_container;
use crate::request::{ContainerSkill, Request, SkillVersion};
use crate::route::Format;

/// The entries of `container.skills` in order; entries without an id are left out.
pub(super) fn skills(request: &Request) -> Vec<ContainerSkill> {
    let src = request.raw();
    let list = request
        .present("container")
        .and_then(|span| json::get(src, span, "skills"));
    let one = |span: &Span| {
        let text = |key| json::get_text(src, *span, key).map(Cow::into_owned);
        Some(ContainerSkill {
            kind: text("type").unwrap_or_default(),
            id: text("skill_id")?,
            version: SkillVersion::read(src, *span, false),
        })
    };
    list.and_then(|span| json::elements(src, span).ok())
        .unwrap_or_default()
        .iter()
        .filter_map(one)
        .collect()
}

/// Takes what is Knack's out of `container`: containers of this gateway never go upstream; true if nothing of the vendor's is left in it.
/// If the member itself has to go, it is put to those that are `gone`.
pub(super) fn take_ours(
    request: &Request,
    own: &[String],
    (edits, gone): (&mut Edits, &mut Vec<&'static str>),
) -> bool {
    let src = request.raw();
    let Some(span) = request.present("container") else {
        return false;
    };
    let ours = is_own_container;
    if let Some(id) = json::text(src, span) {
        if ours(&id) {
            gone.push("container");
        }
        return ours(&id);
    }
    let skills = json::get(src, span, "skills")
        .and_then(|list| json::elements(src, list).ok())
        .unwrap_or_default();
    let is_own =
        |skill: &Span| json::get_text(src, *skill, "skill_id").is_some_and(|id| own.iter().any(|own| *own == id));
    let mut gone_skills: Vec<usize> = (0..skills.len()).filter(|at| is_own(&skills[*at])).collect();
    let id = json::get_text(src, span, "id");
    let own_id = id.as_deref().is_some_and(ours);
    if gone_skills.is_empty() && !own_id {
        return false;
    }
    // LiteLLM skips an entry that is not an object; a list of these alone names no skill that is left to the vendor.
    let is_object = |skill: &Span| json::kind(src, *skill) == Some(ValueKind::Object);
    if !skills.iter().any(|skill| is_object(skill) && !is_own(skill)) {
        gone_skills = (0..skills.len()).collect();
    }
    // Only Messages has containers that a later request names; a provider of Chat Completions refuses the member.
    let foreign_id = request.format() == Format::Messages && id.is_some() && !own_id;
    if gone_skills.len() == skills.len() && !foreign_id {
        gone.push("container");
        return true;
    }
    let members = json::members(src, span).unwrap_or_default();
    let dropped = |key: &[u8]| (key == b"id" && own_id) || (key == b"skills" && gone_skills.len() == skills.len());
    let gone_members: Vec<usize> = (0..members.len())
        .filter(|at| dropped(members[*at].key.of(src)))
        .collect();
    let spans: Vec<Span> = members.iter().map(json::Member::whole).collect();
    edits.remove_items(&spans, &gone_members);
    if gone_skills.len() < skills.len() {
        edits.remove_items(&skills, &gone_skills);
    }
    false
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::json::Span;
    use crate::request::SkillVersion;
    use crate::{Injection, Request, Route, route};

    fn taken(path: &str, body: &str) -> (Vec<String>, String) {
        let Route::Model(route) = route("POST", path) else {
            panic!("no route")
        };
        let request = Request::parse(route, Bytes::from(body.to_owned())).unwrap();
        let injection = Injection {
            own_skills: vec!["litellm:a".to_owned()],
            ..Injection::default()
        };
        let skills = request
            .fields()
            .unwrap()
            .container_skills
            .into_iter()
            .map(|skill| skill.id)
            .collect();
        let body = request.apply(&injection, crate::json::Edits::new());
        (skills, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn a_version_is_a_text_and_in_openais_form_a_whole_number() {
        let read = |value: &str, takes_numbers| {
            let entry = format!(r#"{{"skill_id":"a","version":{value}}}"#);
            let span = Span::new(0, entry.len());
            SkillVersion::read(entry.as_bytes(), span, takes_numbers)
        };
        let text = |text: &str| SkillVersion::Text(text.to_owned());
        for (value, messages, openai) in [
            (r#""1.2.0""#, text("1.2.0"), text("1.2.0")),
            (r#""""#, text(""), text("")),
            ("null", SkillVersion::Absent, SkillVersion::Absent),
            ("2", SkillVersion::Unreadable, text("2")),
            ("2.5", SkillVersion::Unreadable, SkillVersion::Unreadable),
            ("-2", SkillVersion::Unreadable, SkillVersion::Unreadable),
            ("[\"2\"]", SkillVersion::Unreadable, SkillVersion::Unreadable),
            ("true", SkillVersion::Unreadable, SkillVersion::Unreadable),
        ] {
            assert_eq!((read(value, false), read(value, true)), (messages, openai), "{value}");
        }
        let none = br#"{"skill_id":"a"}"#;
        assert_eq!(
            SkillVersion::read(none, Span::new(0, none.len()), true),
            SkillVersion::Absent
        );
    }

    #[test]
    fn chat_and_messages_lose_our_skills_and_keep_the_others() {
        let body = |skills: &str| {
            format!(r#"{{"model":"m","max_tokens":9,"messages":[],"container":{{"skills":[{skills}]}}}}"#)
        };
        let (ours, native) = (
            r#"{"type":"custom","skill_id":"litellm:a"}"#,
            r#"{"type":"custom","skill_id":"skill_01"}"#,
        );
        for path in ["/v1/chat/completions", "/v1/messages"] {
            let (skills, left) = taken(path, &body(&format!("{ours},{native}")));
            assert_eq!(skills, ["litellm:a", "skill_01"]);
            assert_eq!(left, body(native));
            let (_, left) = taken(path, &body(ours));
            assert_eq!(left, r#"{"model":"m","max_tokens":9,"messages":[]}"#);
            assert_eq!(taken(path, &body(native)).1, body(native));
            // Entries that are no objects name no skill, and are left alone where nothing of Knack is.
            let (skills, left) = taken(path, &body(&format!(r#""demo",{ours},5,null"#)));
            assert_eq!(skills, ["litellm:a"]);
            assert_eq!(left, r#"{"model":"m","max_tokens":9,"messages":[]}"#);
            assert_eq!(taken(path, &body(r#""demo""#)).1, body(r#""demo""#));
        }
    }
}
