//! Environments of packages: what a skill with packages is at a runtime, by what builders say.

use knack_packages::environment::{EnvironmentImage, key};
use knack_packages::{EnvironmentStatus, EnvironmentStatuses, Rules, State};
use serde_json::{Value, json};

use super::tests::{reported, runtime, scope, skill};
use super::*;

/// What a builder says of an environment.
fn record(state: State) -> EnvironmentStatus {
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

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_skill_is_served_with_its_environment_or_not_at_all() {
    let declared = json!({"source": "requirements.txt", "python": ["mcp>=1"], "digest": "d1"});
    let own_image = json!({"sandbox": {"image": "r.io/office@sha256:00"}});
    let allowed = json!({"sandbox": {"allowedImages": ["r.io/office"]}});
    let images = json!([
        {"name": "default", "image": "r.io/default@sha256:00"}, {"name": "office", "image": "r.io/office@sha256:00"},
    ]);
    let named = json!({"sandbox": {"images": images}});
    let own_named = json!({"sandbox": {"images": images, "imageName": "default"}});
    let base = |image: &str| json!({"sandbox": {"image": image}});
    let key = |image: &str| key("d1", false, &Rules::default(), image);
    for (what, known, skill_spec, spec, said, state) in [
        (
            "nobody has checked",
            None,
            json!({}),
            json!({}),
            "refused PackagesBuilding: its packages are not available (Resolving)",
            "Resolving",
        ),
        (
            "it is being made",
            Some(State::Building),
            json!({}),
            json!({}),
            "refused PackagesBuilding",
            "Building",
        ),
        (
            "it is there",
            Some(State::Ready),
            json!({}),
            json!({}),
            "served",
            "Ready",
        ),
        (
            "it cannot be made",
            Some(State::NoWheel),
            json!({}),
            json!({}),
            "refused PackagesFailed: its packages are not available (NoWheel): said",
            "NoWheel",
        ),
        (
            "of another base",
            Some(State::Ready),
            json!({}),
            base("r.io/other@sha256:00"),
            "refused PackagesBuilding",
            "Resolving",
        ),
        (
            "of other constraints",
            Some(State::Ready),
            json!({}),
            json!({"packages": {"constraints": ["mcp<2"]}}),
            "refused PackagesBuilding",
            "Resolving",
        ),
        (
            "a rule is broken",
            Some(State::Ready),
            json!({}),
            json!({"packages": {"requireLock": true}}),
            "refused LockRequired",
            "Refused",
        ),
        (
            "an image of the skill's own",
            Some(State::Ready),
            own_image,
            allowed,
            "served",
            "PackagesOff",
        ),
        (
            "an image that the runtime names",
            Some(State::Ready),
            json!({"sandbox": {"imageName": "default"}}),
            named.clone(),
            "served",
            "Ready",
        ),
        (
            "another image that the runtime names",
            Some(State::Ready),
            json!({"sandbox": {"imageName": "office"}}),
            named.clone(),
            "refused PackagesBuilding",
            "Resolving",
        ),
        (
            "the named image that is the runtime's own",
            Some(State::Ready),
            json!({}),
            own_named,
            "served",
            "Ready",
        ),
        (
            "a base that packages cannot be added to",
            Some(State::PackagesOff),
            json!({}),
            json!({}),
            "PackagesMissing: its code runs without",
            "PackagesOff",
        ),
        (
            "the same, by the runtime's own word",
            Some(State::PackagesOff),
            json!({}),
            base("r.io/default@sha256:00"),
            "PackagesMissing: its code runs without",
            "PackagesOff",
        ),
        (
            "the same, by a name",
            Some(State::PackagesOff),
            json!({"sandbox": {"imageName": "default"}}),
            named,
            "PackagesMissing: its code runs without",
            "PackagesOff",
        ),
    ] {
        let records = EnvironmentStatuses(
            known
                .map(|state| (key("r.io/default@sha256:00"), record(state)))
                .into_iter()
                .collect(),
        );
        let mut skill = skill("blue", "pdf", json!({}), skill_spec);
        skill.status.as_mut().unwrap().packages = serde_json::from_value(declared.clone()).unwrap();
        let (runtime, none) = (runtime("blue", spec), NamespaceLabels::new());
        let scope = Scope {
            default_image: Some("r.io/default@sha256:00"),
            allow_image_tags: true,
            environments: Some(&records),
            ..scope(&none)
        };
        let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
        let reported = reported(&selected[0]);
        assert!(reported.starts_with(said), "{what}: {reported}");
        let found = packages(&runtime, Revision::newest(&skill), &scope).unwrap();
        assert_eq!(found.state.as_str(), state, "{what}");
        let given = environment(&runtime, Revision::newest(&skill), &scope);
        assert_eq!(given.is_err(), said.starts_with("refused"), "{what}");
        assert_eq!(given.is_ok_and(|given| given.is_some()), state == "Ready", "{what}");
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
    let key = key("d1", true, &Rules::default(), "r.io/default@sha256:00");
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

/// The same for Python and for Node: what a builder could not add is not there, whoever names the image, and an image
/// that a runtime names is that of all its skills. An image that a skill names and nobody has checked is taken to have
/// what the skill declares.
#[test]
fn a_skill_whose_packages_are_not_installed_says_so() {
    let of_both = [
        json!({"source": "package-lock.json", "locked": true, "node": ["docx@9.5.1"], "digest": "d1"}),
        json!({"source": "requirements.lock", "locked": true, "python": ["six==1"], "digest": "d1"}),
    ];
    let base = "r.io/default@sha256:00";
    let key = key("d1", true, &Rules::default(), base);
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
    let key = key(&standard, true, &Rules::default(), base);
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

/// What a runtime gives may be missing: the skill is served all the same, and what it declares wins.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_runtime_gives_the_standard_environment_to_skills_that_declare_nothing() {
    let standard =
        knack_packages::environment::Input::of(&knack_packages::given::standard_environment().unwrap()).digest();
    let base = "r.io/default@sha256:00";
    let gives = json!({"packages": {"standard": true, "requireLock": true}});
    let declares = json!({"source": "requirements.lock", "locked": true, "python": ["six==1"], "digest": "d1"});
    let nothing_wanted = json!({"source": "spec.packages.python"});
    let asks = json!({"source": "standard environment", "locked": true, "python": ["numpy==2"], "digest": standard});
    let ready = (json!(null), gives.clone(), Some(State::Ready), "served", Some("Ready"));
    for (what, (declared, spec, known, said, state)) in [
        ("it is there", ready),
        (
            "a runtime that gives nothing",
            (json!(null), json!({}), Some(State::Ready), "served", None),
        ),
        (
            "it is being made",
            (
                json!(null),
                gives.clone(),
                Some(State::Building),
                "PackagesMissing: its code runs without the standard environment that this runtime gives",
                Some("Building"),
            ),
        ),
        (
            "it cannot be made",
            (
                json!(null),
                gives.clone(),
                Some(State::NoWheel),
                "PackagesMissing: its code",
                Some("NoWheel"),
            ),
        ),
        (
            "constraints exclude it",
            (
                json!(null),
                json!({"packages": {"standard": true, "constraints": ["numpy<1"]}}),
                Some(State::Ready),
                "PackagesMissing: its code",
                Some("Conflict"),
            ),
        ),
        (
            "constraints leave a version for some Pythons, and a builder knows which one it is",
            (
                json!(null),
                json!({"packages": {"standard": true, "constraints": ["numpy>=2.3"]}}),
                Some(State::Ready),
                "PackagesMissing: its code",
                Some("Resolving"),
            ),
        ),
        (
            "what is declared wins",
            (
                declares,
                gives.clone(),
                Some(State::Ready),
                "refused PackagesBuilding",
                Some("Resolving"),
            ),
        ),
        (
            "nothing is asked for",
            (nothing_wanted, gives.clone(), Some(State::Ready), "served", None),
        ),
        (
            "the skill asks for it",
            (asks.clone(), json!({}), Some(State::Ready), "served", Some("Ready")),
        ),
        (
            "the skill asks for it, and the runtime allows nothing else",
            (
                asks.clone(),
                json!({"packages": {"allowed": "Standard"}}),
                Some(State::Ready),
                "served",
                Some("Ready"),
            ),
        ),
        (
            "the skill asks for it, for some versions of Python, and the runtime allows nothing else",
            (
                json!({"source": "standard environment", "locked": true, "python": ["numpy==2"], "digest": "d2"}),
                json!({"packages": {"allowed": "Standard"}}),
                Some(State::Ready),
                "refused PackagesBuilding",
                Some("Resolving"),
            ),
        ),
        (
            "the skill asks for packages of Node besides, and the runtime allows nothing else",
            (
                json!({"source": "standard environment; package-lock.json", "locked": true, "python": ["numpy==2"], "node": ["c@1.0.0"], "digest": "d3"}),
                json!({"packages": {"allowed": "Standard"}}),
                Some(State::Ready),
                "refused PackagesNotAllowed",
                Some("Refused"),
            ),
        ),
        (
            "the skill asks for it, and the runtime allows nothing",
            (
                asks.clone(),
                json!({"packages": {"allowed": "None"}}),
                Some(State::Ready),
                "refused PackagesNotAllowed",
                Some("Refused"),
            ),
        ),
        (
            "the skill asks for it, and it is not there",
            (
                asks,
                gives,
                Some(State::Building),
                "refused PackagesBuilding",
                Some("Building"),
            ),
        ),
    ] {
        let key = key(&standard, true, &Rules::default(), base);
        let records = EnvironmentStatuses(known.map(|state| (key, record(state))).into_iter().collect());
        let is_own = !declared.is_null();
        let mut skill = skill("blue", "pdf", json!({}), json!({}));
        skill.status.as_mut().unwrap().packages = serde_json::from_value(declared).unwrap();
        let (runtime, none) = (runtime("blue", spec), NamespaceLabels::new());
        let scope = Scope {
            default_image: Some(base),
            environments: Some(&records),
            ..scope(&none)
        };
        let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
        let reported = reported(&selected[0]);
        assert!(reported.starts_with(said), "{what}: {reported}");
        let found = packages(&runtime, Revision::newest(&skill), &scope);
        assert_eq!(found.as_ref().map(|found| found.state.as_str()), state, "{what}");
        let source = found.and_then(|found| found.given);
        let expected = (state.is_some() && !is_own).then_some("standard environment, by the runtime");
        assert_eq!(source, expected, "{what}");
        let given = environment(&runtime, Revision::newest(&skill), &scope);
        assert_eq!(given.is_err(), said.starts_with("refused"), "{what}");
        assert_eq!(
            given.is_ok_and(|given| given.is_some()),
            state == Some("Ready"),
            "{what}"
        );
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
