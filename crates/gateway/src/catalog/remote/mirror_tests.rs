//! What a mirror takes, and what it does not.

use super::*;
use knack_hub_api::fixture::runtime_line;
use knack_hub_api::{Overrides, PROTOCOL, Synced, UnservedSkills};

fn hello(seen: u64) -> CatalogLine {
    CatalogLine::Hello(Hello {
        protocol: PROTOCOL,
        protocol_min: None,
        version: "1".to_owned(),
        resource_version: seen.to_string(),
        client_namespace: None,
        watched_namespaces: None,
    })
}

fn runtime(at: u64, suspend: bool) -> CatalogLine {
    CatalogLine::Runtime(Box::new(RuntimeLine {
        resource_version: at.to_string(),
        suspend,
        ..runtime_line()
    }))
}

fn skill(name: &str, uid: &str, at: u64) -> CatalogLine {
    CatalogLine::Skill(Box::new(SkillLine {
        namespace: "a".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        resource_version: at.to_string(),
        digest: format!("digest {at}"),
        created: 0,
        overrides: Overrides::default(),
        upload: None,
        withheld_tools: Vec::new(),
    }))
}

fn removed(name: &str, uid: &str, at: u64) -> CatalogLine {
    CatalogLine::Removed(Removed {
        namespace: "a".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        resource_version: at.to_string(),
    })
}

fn synced() -> CatalogLine {
    CatalogLine::Synced(Synced {
        resource_version: String::new(),
    })
}

fn check(lines: Vec<CatalogLine>, expected: &[&str]) {
    let mut mirror = Mirror::default();
    mirror.take(runtime(1, false));
    for line in lines {
        mirror.take(line);
    }
    let served: Vec<String> = mirror
        .served()
        .map(|(id, line)| format!("{} {} {}", id.name, line.uid, line.resource_version))
        .collect();
    assert_eq!(served, expected);
}

#[test]
fn an_older_version_of_the_same_object_is_ignored() {
    check(vec![skill("x", "u", 9), skill("x", "u", 8)], &["x u 9"]);
    check(vec![skill("x", "u", 9), skill("x", "u", 10)], &["x u 10"]);
    // Deleted and created again: another uid, with its own versions.
    check(vec![skill("x", "u", 9), skill("x", "v", 12)], &["x v 12"]);
}

#[test]
fn a_replica_that_lags_brings_nothing_back() {
    check(vec![skill("x", "u", 9), removed("x", "u", 12), skill("x", "u", 9)], &[]);
    // Deselected and selected again without a change of the object.
    check(
        vec![skill("x", "u", 9), removed("x", "u", 9), skill("x", "u", 9)],
        &["x u 9"],
    );
    check(vec![skill("x", "v", 20), removed("x", "u", 12)], &["x v 20"]);
}

#[test]
fn absence_from_an_index_proves_a_deletion_only_of_what_its_replica_has_seen() {
    let first = || vec![hello(9), skill("x", "u", 9), skill("y", "w", 5), synced()];
    let mut lines = first();
    lines.extend([hello(10), synced()]);
    check(lines, &[]);
    let mut lines = first();
    lines.extend([hello(7), synced()]);
    check(lines, &["x u 9"]);
    let mut lines = first();
    lines.extend([hello(12), skill("x", "u", 9), synced()]);
    check(lines, &["x u 9"]);
}

#[test]
fn a_skill_where_the_replica_does_not_read_is_gone_however_new() {
    let hello_of = |namespaces: &[&str]| match hello(7) {
        CatalogLine::Hello(hello) => CatalogLine::Hello(Hello {
            watched_namespaces: Some(namespaces.iter().map(|&name| name.to_owned()).collect()),
            ..hello
        }),
        other => other,
    };
    for (namespaces, expected) in [(&["b", "c"][..], &[][..]), (&["b", "a"], &["x u 9"])] {
        let first = [hello(9), skill("x", "u", 9), synced()];
        check(
            first.into_iter().chain([hello_of(namespaces), synced()]).collect(),
            expected,
        );
    }
}

#[test]
fn a_suspended_runtime_serves_nothing_and_old_settings_do_not_come_back() {
    let mut mirror = Mirror::default();
    assert!(matches!(mirror.take(synced()), LineEffect::Refused(_)));
    mirror.take(runtime(5, true));
    mirror.take(skill("x", "u", 1));
    assert_eq!(mirror.take(synced()), LineEffect::Complete);
    assert_eq!(mirror.served().count(), 0);
    mirror.take(runtime(4, false));
    assert_eq!(mirror.served().count(), 0);
    mirror.take(runtime(6, false));
    assert_eq!(mirror.served().count(), 1);
}

#[test]
fn a_hub_without_a_protocol_in_common_is_refused_with_what_to_do() {
    let line = |protocol_min, protocol| {
        CatalogLine::Hello(Hello {
            protocol,
            protocol_min,
            version: "9.9".to_owned(),
            resource_version: String::new(),
            client_namespace: None,
            watched_namespaces: None,
        })
    };
    for (min, max) in [
        (None, PROTOCOLS.max),
        (None, PROTOCOLS.min),
        (Some(PROTOCOLS.max), PROTOCOLS.max + 2),
        (Some(0), PROTOCOLS.min),
    ] {
        assert_eq!(
            Mirror::default().take(line(min, max)),
            LineEffect::NotedRun,
            "{min:?} {max}"
        );
    }
    for (min, max) in [
        (None, PROTOCOLS.max + 1),
        (Some(PROTOCOLS.max + 1), PROTOCOLS.max + 2),
        (None, 0),
    ] {
        let LineEffect::Refused(text) = Mirror::default().take(line(min, max)) else {
            panic!("{min:?} {max}")
        };
        assert!(text.contains("9.9") && text.contains("upgrade"), "{text}");
    }
}

#[test]
fn a_catalog_of_another_namespace_is_refused() {
    let hello = |namespace: Option<&str>| {
        CatalogLine::Hello(Hello {
            protocol: PROTOCOL,
            protocol_min: None,
            version: "1".to_owned(),
            resource_version: String::new(),
            client_namespace: namespace.map(str::to_owned),
            watched_namespaces: None,
        })
    };
    for (asked, message, taken) in [
        (None, None, true),
        (Some("a"), Some("a"), true),
        (Some("a"), Some("b"), false),
        (Some("a"), None, false),
        (None, Some("a"), false),
    ] {
        let answer = Mirror::for_namespace(asked).take(hello(message));
        assert_eq!(answer == LineEffect::NotedRun, taken, "{asked:?} {message:?}");
    }
}

#[test]
fn resource_versions_are_numbers_of_any_length() {
    for (one, other, expected) in [
        ("9", "10", Ordering::Less),
        ("10", "10", Ordering::Equal),
        ("18446744073709551616", "18446744073709551615", Ordering::Greater),
        ("x", "1", Ordering::Equal),
    ] {
        assert_eq!(compare(one, other), expected, "{one} {other}");
    }
}

#[test]
fn a_replica_that_lags_takes_nothing_from_a_restored_mirror() {
    let mut before = Mirror::default();
    let lines = [
        hello(20),
        runtime(5, false),
        skill("x", "u", 9),
        skill("y", "w", 20),
        synced(),
    ];
    for line in lines.into_iter().chain([removed("x", "u", 12)]) {
        before.take(line);
    }
    let json = serde_json::to_string(&before.state(|_| true).unwrap()).unwrap();
    let served = |mirror: &Mirror| -> Vec<String> {
        let names = mirror
            .served()
            .map(|(id, line)| format!("{} {}", id.name, line.resource_version));
        names.collect()
    };
    for (lines, expected) in [
        // It has not seen y yet, and x is not gone there yet.
        (
            vec![hello(10), runtime(4, true), skill("x", "u", 9), synced()],
            &["y 20"][..],
        ),
        (
            vec![hello(20), runtime(5, false), skill("y", "w", 19), synced()],
            &["y 20"],
        ),
        (vec![hello(21), runtime(5, false), synced()], &[]),
    ] {
        let mut mirror = Mirror::default();
        mirror.restore(serde_json::from_str(&json).unwrap());
        assert_eq!(served(&mirror), ["y 20"]);
        let message = format!("{lines:?}");
        for line in lines {
            mirror.take(line);
        }
        assert_eq!(served(&mirror), expected, "{message}");
    }
}

#[test]
fn a_skill_without_content_is_not_saved_and_nothing_is_before_the_settings() {
    let mut mirror = Mirror::default();
    mirror.take(skill("x", "u", 1));
    mirror.take(skill("y", "v", 2));
    assert_eq!(mirror.state(|_| true), None);
    mirror.take(runtime(1, false));
    let state = mirror.state(|line| line.digest == "digest 2").unwrap();
    assert_eq!(
        state.skills.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
        ["y"]
    );
}

#[test]
fn what_is_known_is_no_change() {
    let mut mirror = Mirror::default();
    let mut changes = |lines: Vec<CatalogLine>| {
        for line in lines {
            mirror.take(line);
        }
        mirror.take_changed()
    };
    let all = |at| {
        vec![
            hello(at),
            runtime(at, false),
            skill("x", "u", 9),
            skill("y", "v", 9),
            synced(),
        ]
    };
    assert!(changes(all(9)), "the first index");
    assert!(!changes(all(9)), "a hub that starts again");
    assert!(!changes(vec![runtime(10, false), synced()]), "a status was written");
    let status = SkillLine {
        resource_version: "10".to_owned(),
        ..match skill("x", "u", 9) {
            CatalogLine::Skill(line) => *line,
            _ => unreachable!(),
        }
    };
    assert!(
        !changes(vec![CatalogLine::Skill(Box::new(status)), synced()]),
        "the same of a Skill"
    );
    assert!(changes(vec![skill("x", "u", 11), synced()]), "other content");
    assert!(!changes(vec![skill("x", "u", 9), synced()]), "a replica that lags");
    assert!(changes(vec![skill("y", "w", 12), synced()]), "applied again");
    assert!(changes(vec![removed("y", "w", 13), synced()]));
    assert!(!changes(vec![removed("y", "w", 13), synced()]));
    assert!(changes(vec![runtime(14, true), synced()]));
    assert!(
        changes(vec![hello(15), runtime(14, true), synced()]),
        "not named by the index"
    );
}

/// Another replica may see another list, and an older hub sends none: what is known is what the stream says.
#[test]
fn the_list_of_what_is_not_served_is_that_of_the_stream() {
    let list = |names: &[&str]| {
        let skills = names.iter().map(|name| UnservedSkill {
            namespace: "a".to_owned(),
            name: (*name).to_owned(),
            why: "InvalidSkill: m".to_owned(),
        });
        CatalogLine::Unserved(UnservedSkills {
            skills: skills.collect(),
        })
    };
    let names = |mirror: &Mirror| -> Vec<String> { mirror.unserved().iter().map(|skill| skill.name.clone()).collect() };
    let mut mirror = Mirror::default();
    for line in [hello(1), runtime(1, false), list(&["x", "y"]), synced()] {
        mirror.take(line);
    }
    assert_eq!(
        (names(&mirror), mirror.take_changed()),
        (vec!["x".to_owned(), "y".to_owned()], true)
    );
    mirror.take(list(&["x", "y"]));
    assert!(!mirror.take_changed(), "the same list");
    mirror.take(list(&["y"]));
    assert_eq!((names(&mirror), mirror.take_changed()), (vec!["y".to_owned()], true));
    mirror.take(list(&vec!["z"; UNSERVED_MAX + 1]));
    assert_eq!(names(&mirror).len(), UNSERVED_MAX);
    mirror.take(hello(2));
    mirror.take(synced());
    assert_eq!((names(&mirror), mirror.take_changed()), (vec![], true));
}
