//! Environments of packages: what a skill with packages is at a runtime, by what builders say.

use knack_packages::environment::EnvironmentImage;
use knack_packages::{EnvironmentKey, EnvironmentStatus, EnvironmentStatuses, Rules, State};
use serde_json::{Value, json};

use super::tests::{reported, runtime, scope, skill};
use super::*;

/// What a builder says of an environment.
pub(super) fn record(state: State) -> EnvironmentStatus {
    let image = EnvironmentImage {
        image: format!("r.io/environments@sha256:{}", "a".repeat(64)),
        home: "/opt/knack/packages/env-1".to_owned(),
    };
    EnvironmentStatus {
        state,
        message: "said".to_owned(),
        environment: (state == State::Ready).then_some(image),
        is_partial: false,
        since: 0,
        used: 0,
    }
}

/// A skill with these packages at a runtime with the images `default` and `node`, and what builders say of the first one.
fn at_images(
    declared: &Value,
    skill_spec: Value,
    spec: Value,
    known: Option<&EnvironmentStatuses>,
) -> (String, PackagesVerdict) {
    let mut skill = skill("blue", "pdf", json!({}), skill_spec);
    skill.status.as_mut().unwrap().packages = serde_json::from_value(declared.clone()).unwrap();
    let (runtime, none) = (runtime("blue", spec), NamespaceLabels::new());
    let scope = Scope {
        default_image: Some("r.io/default@sha256:00"),
        allow_image_tags: true,
        environments: known,
        ..scope(&none)
    };
    let reported = reported(&select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill))[0]);
    (reported, packages(&runtime, Revision::newest(&skill), &scope).unwrap())
}

/// Rules of a runtime are of versions that are chosen; those of a lock of Node are not.
#[test]
fn packages_of_node_are_served_with_their_environment_and_no_rule_speaks_of_them() {
    let node = json!({"source": "package-lock.json", "locked": true, "node": ["docx@9.5.1"], "digest": "d1"});
    let open = json!({"source": "requirements.txt; package.json", "python": ["mcp>=1"], "node": ["docx@9.5.1"], "digest": "d1"});
    let unlocked = json!({"source": "package.json", "node": ["docx@^9"], "nodeUnlocked": true, "digest": "d1"});
    let demands = json!({"packages": {"constraints": ["docx<2", "six<2"], "requireLock": true}});
    let key = EnvironmentKey::of("d1", true, &Rules::default(), "r.io/default@sha256:00");
    let ready = EnvironmentStatuses([(key, record(State::Ready))].into());
    let nothing = EnvironmentStatuses::default();
    for (what, declared, records, spec, said, state) in [
        ("it is there", &node, Some(&ready), json!({}), "served", "Ready"),
        ("under rules", &node, Some(&ready), demands.clone(), "served", "Ready"),
        (
            "nobody has checked",
            &node,
            Some(&nothing),
            json!({}),
            "refused PackagesBuilding",
            "Resolving",
        ),
        (
            "nothing builds",
            &node,
            None,
            json!({}),
            "PackagesMissing: its code runs without",
            "PackagesOff",
        ),
        (
            "those of Python beside it are open",
            &open,
            Some(&ready),
            demands,
            "refused LockRequired",
            "Refused",
        ),
    ] {
        let (reported, found) = at_images(declared, json!({}), spec, records);
        assert!(reported.starts_with(said), "{what}: {reported}");
        assert_eq!(found.state.as_str(), state, "{what}");
    }
    let refused = "refused LockRequired: packages of Node are declared in package.json without package-lock.json";
    for (records, said) in [(Some(&ready), refused), (None, "PackagesMissing: its code runs")] {
        let reported = at_images(&unlocked, json!({}), json!({}), records).0;
        assert!(reported.starts_with(said), "{reported}");
    }
}

/// For Python as for Node: what a builder could not add is not there, whoever names the image, and an image
/// that a runtime names is that of all its skills. An image that a skill names and nobody has checked is taken to have
/// what the skill declares.
#[test]
fn a_skill_whose_packages_are_not_installed_says_so() {
    let of_both = [
        json!({"source": "package-lock.json", "locked": true, "node": ["docx@9.5.1"], "digest": "d1"}),
        json!({"source": "requirements.lock", "locked": true, "python": ["six==1"], "digest": "d1"}),
    ];
    let base = "r.io/default@sha256:00";
    let key = EnvironmentKey::of("d1", true, &Rules::default(), base);
    let known = |state, is_partial| {
        let record = EnvironmentStatus {
            is_partial,
            ..record(state)
        };
        EnvironmentStatuses([(key.clone(), record)].into())
    };
    let (off, partial) = (known(State::PackagesOff, false), known(State::Ready, true));
    let named = json!({"sandbox": {"images": [{"name": "own", "image": base}]}});
    let own = json!({"sandbox": {"image": base}});
    let asks = json!({"sandbox": {"imageName": "own"}});
    let refers = json!({"sandbox": {"image": "r.io/own@sha256:00"}});
    let allowed = json!({"sandbox": {"allowedImages": ["r.io/own"]}});
    let missing = "PackagesMissing: its code runs without the packages that it declares: said";
    let unknown = "PackagesMissing: its code runs without the packages that it declares: packages are not installed on this cluster; \
                   the code can use only what r.io/default@sha256:00 contains; set packages.repository";
    for (what, skill_spec, spec, records, said) in [
        ("the builder could not", json!({}), json!({}), Some(&off), missing),
        ("at the runtime's image", json!({}), own.clone(), Some(&off), missing),
        ("at an image by name", asks.clone(), named.clone(), Some(&off), missing),
        (
            "some are left out",
            json!({}),
            own.clone(),
            Some(&partial),
            "PackagesMissing: its code runs without some of the packages that it declares: said",
        ),
        ("nothing builds", json!({}), own, None, unknown),
        ("nothing builds, by name", asks, named, None, "served"),
        ("by reference", refers.clone(), allowed.clone(), None, "served"),
        (
            "by reference, where others are built",
            refers,
            allowed,
            Some(&off),
            "served",
        ),
    ] {
        for declared in &of_both {
            let (reported, _) = at_images(declared, skill_spec.clone(), spec.clone(), records);
            assert!(reported.starts_with(said), "{what}, {declared}: {reported}");
        }
    }
}

/// It is told where the runtime's own image cannot have it, and not of an image that a skill without declarations asks for.
#[test]
fn what_a_runtime_gives_is_not_missed_in_an_image_that_a_skill_asks_for() {
    let base = "r.io/default@sha256:00";
    let standard =
        knack_packages::environment::Input::of(&knack_packages::given::standard_environment().unwrap()).digest();
    let key = EnvironmentKey::of(&standard, true, &Rules::default(), base);
    let off = EnvironmentStatuses([(key, record(State::PackagesOff))].into());
    let gives =
        json!({"packages": {"standard": true}, "sandbox": {"image": base, "images": [{"name": "own", "image": base}]}});
    let missing = "PackagesMissing: its code runs without the standard environment that this runtime gives: ";
    for (asks, records, said) in [
        (json!({"sandbox": {"imageName": "own"}}), Some(&off), "served"),
        (json!({}), Some(&off), missing),
        (json!({}), None, missing),
    ] {
        let (reported, found) = at_images(&Value::Null, asks, gives.clone(), records);
        assert!(reported.starts_with(said), "{reported}");
        assert_eq!(found.state, State::PackagesOff);
    }
}

/// A status cuts long markers, and a builder reads them whole: both find the same key, and no constraint is evaded.
#[test]
fn a_long_marker_hides_no_version_from_a_constraint() {
    let long = format!(
        "python_full_version < '3.11' and platform_release != '{}'",
        "x".repeat(600)
    );
    let hash = format!("--hash=sha256:{}", "a".repeat(64));
    let lock =
        format!("numpy==2.2.6 ; {long} {hash}\nnumpy==2.4.6 ; python_full_version >= '3.11' {hash}\nsix==1 {hash}\n");
    let file = knack_skill::model::SkillFile {
        bytes: lock.into_bytes().into(),
        executable: false,
    };
    let declared = knack_packages::stated(&[("requirements.lock".to_owned(), file)].into(), None);
    let status = declared_packages(&declared).unwrap();
    assert!(
        status.python.iter().any(|line| line.chars().count() == 512),
        "{status:?}"
    );
    let base = "r.io/default@sha256:00";
    let (none, nothing) = (NamespaceLabels::new(), EnvironmentStatuses::default());
    let scope = Scope {
        default_image: Some(base),
        environments: Some(&nothing),
        ..scope(&none)
    };
    let mut skill = skill("blue", "pdf", json!({}), json!({}));
    skill.status.as_mut().unwrap().packages = Some(status);
    for (constraint, is_refused, day) in [
        ("numpy>=2.3", false, None),
        ("numpy<3", false, None),
        ("numpy<2", true, None),
        ("six>=2", true, None),
        ("numpy>=2.3", false, Some("2026-07-01")),
    ] {
        let runtime = runtime(
            "blue",
            json!({"packages": {"constraints": [constraint], "excludeNewer": day}}),
        );
        let request = knack_packages::Request {
            input: knack_packages::environment::Input::of(&declared),
            constraints: vec![constraint.to_owned()],
            exclude_newer: day.map(str::to_owned),
            base: base.to_owned(),
        };
        let asked = asked(&runtime, Revision::newest(&skill), &scope).map(|asked| asked.key);
        let expected = (!is_refused).then(|| request.key().unwrap());
        assert_eq!(asked, expected, "{constraint}");
        let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
        let reported = reported(&selected[0]);
        assert_eq!(
            reported.starts_with("refused PackagesConflict"),
            is_refused,
            "{constraint}: {reported}"
        );
    }
}

#[test]
fn a_requirement_that_cannot_be_read_breaks_the_rules() {
    let declared = json!({"source": "requirements.lock", "locked": true, "python": ["numpy==2", "%%"], "digest": "d1"});
    let nothing = EnvironmentStatuses::default();
    for (spec, said) in [
        (
            json!({"packages": {"constraints": ["numpy<3"]}}),
            "refused PackagesConflict: \"%%\" cannot be read",
        ),
        (json!({}), "refused PackagesBuilding"),
    ] {
        let (reported, _) = at_images(&declared, json!({}), spec, Some(&nothing));
        assert!(reported.starts_with(said), "{reported}");
    }
}

/// The definition takes nothing but what it seems to be; of clauses and markers the controller says what is wrong.
#[test]
fn the_definition_takes_the_constraints_that_the_code_reads() {
    let at_constraints = |rule: &&knack_api::schema::Rule| rule.at == "spec.packages.constraints[]";
    let rule = knack_api::schema::RULES.iter().find(at_constraints).unwrap().rule;
    let pattern = rule
        .strip_prefix("self.matches('")
        .and_then(|rest| rest.strip_suffix("')"));
    let takes = regex::Regex::new(pattern.unwrap()).unwrap();
    for (text, is_taken, is_read) in [
        ("mcp<2", true, true),
        ("six ~= 1.16", true, true),
        ("MCP <2 , >=1", true, true),
        ("a==1.*", true, true),
        ("a!=1.0.*,>=1!2", true, true),
        ("a>=2.0RC1.post2.dev3", true, true),
        ("a==1.0+local.5", true, true),
        ("a===1.0", true, true),
        ("a<=v1.0-1", true, true),
        ("a>=2 ; python_version < '3.9'", true, true),
        ("mcp<1.*", true, false),
        ("mcp~=1", true, false),
        ("mcp>=1+local", true, false),
        ("mcp<2 ; python", true, false),
        ("mcp<2x", false, false),
        ("mcp", false, false),
        ("mcp=2", false, false),
        ("mcp=<2", false, false),
        ("mcp=~2", false, false),
        ("mcp<", false, false),
        ("mcp<banana1", false, false),
        ("mcp[cli]<2", false, false),
        ("mcp<2,", false, false),
        ("mcp<2 <3", false, false),
        ("a @ https://example.org/a.whl", false, false),
        ("-a<2", false, false),
    ] {
        assert_eq!(takes.is_match(text), is_taken, "{text}");
        assert_eq!(Rules::read(&[text.to_owned()], false).is_ok(), is_read, "{text}");
    }
}
