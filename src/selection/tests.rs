//! Who sees what, how, and why not: one table row per rule.

use std::collections::BTreeMap;

use knack_api::{Skill, SkillRuntime};
use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
pub(super) fn skill(namespace: &str, name: &str, labels: Value, spec: Value) -> Skill {
    let mut whole = json!({"source": {"inline": {"files": {"SKILL.md": "x"}}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": whole,
        "status": {"artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1}},
    }))
    .unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
pub(super) fn runtime(namespace: &str, spec: Value) -> SkillRuntime {
    serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
        "metadata": {"namespace": namespace, "name": "main"}, "spec": spec,
    }))
    .unwrap()
}

/// The scope of a runtime that is not the cluster default, without an image.
pub(super) fn scope(namespaces: &NamespaceLabels) -> Scope<'_> {
    Scope {
        cluster_default: false,
        namespaces,
        default_image: None,
        allow_image_tags: false,
        environments: None,
    }
}

/// How a selected skill is judged.
pub(super) fn reported(selected: &Selected<'_>) -> String {
    match &selected.accepted {
        Ok(None) => "served".to_owned(),
        Ok(Some(note)) => format!("{}: {}", note.reason.as_str(), note.message),
        Err(rejection) => format!("refused {}: {}", rejection.reason.as_str(), rejection.message),
    }
}

fn namespaces() -> NamespaceLabels {
    [("blue", "team"), ("red", "team"), ("grey", "other")]
        .into_iter()
        .map(|(name, kind)| (name.to_owned(), BTreeMap::from([("kind".to_owned(), kind.to_owned())])))
        .collect()
}

pub(super) fn allowed(from: &str) -> Value {
    let mut namespaces = json!({"from": from});
    if from == "Selector" {
        namespaces["selector"] = json!({"matchLabels": {"kind": "team"}});
    }
    json!({"allowedRuntimes": {"namespaces": namespaces}})
}

/// `namespace/name mode verdict`, one per selected skill.
pub(super) fn view(
    runtime: &SkillRuntime,
    cluster_default: bool,
    caller: Audience<'_>,
    skills: &[Skill],
) -> Vec<String> {
    let namespaces = namespaces();
    let scope = Scope {
        cluster_default,
        namespaces: &namespaces,
        default_image: Some("r.io/default@sha256:00"),
        allow_image_tags: false,
        environments: None,
    };
    select(runtime, &scope, caller, skills)
        .iter()
        .map(|item| {
            let meta = &item.skill.metadata;
            let verdict = match &item.accepted {
                Ok(None) => "ok".to_owned(),
                Ok(Some(note)) => format!("ok,{}", note.reason.as_str()),
                Err(rejection) => rejection.reason.as_str().to_owned(),
            };
            format!(
                "{}/{} {} {verdict}",
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default(),
                item.mode.as_str()
            )
        })
        .collect()
}

#[test]
fn labels_namespaces_and_pins_select() {
    let skills = [
        skill("blue", "a", json!({"x": "1"}), json!({})),
        skill("blue", "b", json!({}), json!({})),
        skill("red", "c", json!({"x": "1"}), allowed("All")),
        skill("red", "d", json!({}), json!({})),
        skill("grey", "e", json!({"x": "1"}), allowed("All")),
    ];
    for (selector, expected) in [
        (json!(null), vec!["blue/a Listed ok", "blue/b Listed ok"]),
        (json!({"matchLabels": {"x": "1"}}), vec!["blue/a Listed ok"]),
        (
            json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}),
            vec!["blue/b Listed ok"],
        ),
        (
            json!({"matchLabels": {"x": "1"}, "namespaceSelector": {"matchLabels": {"kind": "team"}}}),
            vec!["blue/a Listed ok", "red/c Listed ok"],
        ),
        (
            json!({"matchLabels": {"x": "1"}, "skills": [{"name": "b"}, {"namespace": "red", "name": "d"}]}),
            vec!["blue/a Listed ok", "blue/b Listed ok", "red/d Listed NotAllowedBySkill"],
        ),
        (
            json!({"matchLabels": {"no": "one"}, "skills": [{"name": "b", "mode": "Always"}]}),
            vec!["blue/b Always ok"],
        ),
    ] {
        let runtime = runtime("blue", json!({"skillSelector": selector}));
        assert_eq!(view(&runtime, false, Audience::All, &skills), expected, "{selector}");
    }
}

#[test]
fn the_owner_of_a_skill_consents() {
    for (from, other_namespace, cluster_default) in [
        ("Same", "NotAllowedBySkill", "NotAllowedBySkill"),
        ("SameOrClusterDefault", "NotAllowedBySkill", "ok"),
        ("All", "ok", "ok"),
        ("Selector", "ok", "ok"),
    ] {
        let skills = [skill("red", "a", json!({}), allowed(from))];
        let runtime = runtime(
            "blue",
            json!({"skillSelector": {"skills": [{"namespace": "red", "name": "a"}]}}),
        );
        for (default, expected) in [(false, other_namespace), (true, cluster_default)] {
            assert_eq!(
                view(&runtime, default, Audience::All, &skills),
                [format!("red/a Listed {expected}")],
                "{from} {default}"
            );
        }
    }
    let skills = [skill("red", "a", json!({}), allowed("Selector"))];
    let grey = runtime(
        "grey",
        json!({"skillSelector": {"skills": [{"namespace": "red", "name": "a"}]}}),
    );
    assert_eq!(
        view(&grey, false, Audience::All, &skills),
        ["red/a Listed NotAllowedBySkill"]
    );
}

#[test]
fn callers_of_the_cluster_default_see_their_own_and_what_is_shared() {
    let skills = [
        skill("blue", "own", json!({}), json!({})),
        skill("grey", "hers", json!({}), allowed("Selector")),
        skill("home", "house", json!({}), json!({})),
        skill("red", "closed", json!({}), json!({})),
        skill("red", "open", json!({}), allowed("All")),
    ];
    let runtime = runtime("home", json!({}));
    for (caller, expected) in [
        (
            Audience::Namespace("blue"),
            vec!["blue/own", "grey/hers", "home/house", "red/open"],
        ),
        (Audience::Namespace("grey"), vec!["grey/hers", "home/house", "red/open"]),
        (
            Audience::Namespace("red"),
            vec!["grey/hers", "home/house", "red/closed", "red/open"],
        ),
        (
            Audience::All,
            vec!["blue/own", "grey/hers", "home/house", "red/closed", "red/open"],
        ),
    ] {
        let seen = view(&runtime, true, caller, &skills);
        let names: Vec<_> = seen.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, expected, "{caller:?}");
    }
}

#[test]
fn activation_is_capped_and_pins_go_higher() {
    for (asked, cap, pin, expected) in [
        ("Always", json!(null), json!(null), "Listed ok,ServedAtCap"),
        ("Always", json!("Auto"), json!(null), "Auto ok,ServedAtCap"),
        ("Always", json!("Always"), json!(null), "Always ok"),
        ("OnRequest", json!("Always"), json!(null), "OnRequest ok"),
        ("Listed", json!("OnRequest"), json!("Always"), "Always ok"),
        ("Always", json!("Always"), json!("Never"), "Never ok"),
    ] {
        let skills = [skill("blue", "a", json!({}), json!({"activation": {"mode": asked}}))];
        let pins = if pin.is_null() {
            json!([])
        } else {
            json!([{"name": "a", "mode": pin}])
        };
        let runtime = runtime("blue", json!({"maxActivation": cap, "skillSelector": {"skills": pins}}));
        assert_eq!(
            view(&runtime, false, Audience::All, &skills),
            [format!("blue/a {expected}")]
        );
    }
}

#[test]
fn a_skill_may_only_tighten() {
    let sandbox = json!({
        "image": "r.io/own@sha256:11", "allowedImages": ["r.io/more", "r.io:5000/port"], "maxTimeoutSeconds": 30,
        "resources": {"limits": {"memory": "128Mi", "cpu": "1"}}, "maxResources": {"memory": "256Mi"},
        "images": [{"name": "office", "image": "r.io/office@sha256:33"}, {"name": "tagged", "image": "r.io/office:1"}],
    });
    for (asked, expected) in [
        (json!({}), "ok"),
        (json!({"timeoutSeconds": 30}), "ok"),
        (json!({"timeoutSeconds": 31}), "TimeoutOverCeiling"),
        (json!({"resources": {"limits": {"memory": "256Mi"}}}), "ok"),
        (
            json!({"resources": {"limits": {"memory": "257Mi"}}}),
            "ResourcesOverCeiling",
        ),
        (
            json!({"resources": {"limits": {"memory": "999999999999Ei"}}}),
            "ResourcesOverCeiling",
        ),
        (
            json!({"resources": {"limits": {"cpu": "1500m"}}}),
            "ResourcesOverCeiling",
        ),
        (json!({"resources": {"requests": {"cpu": "2"}}}), "ResourcesOverCeiling"),
        (
            json!({"resources": {"limits": {"nvidia.com/gpu": 1}}}),
            "ResourcesOverCeiling",
        ),
        // The runtime does not name it: the ceiling is the default.
        (json!({"resources": {"limits": {"ephemeral-storage": "64Mi"}}}), "ok"),
        (
            json!({"resources": {"limits": {"ephemeral-storage": "1Gi"}}}),
            "ResourcesOverCeiling",
        ),
        (json!({"image": "r.io/own@sha256:11"}), "ok"),
        (json!({"image": "r.io/more@sha256:22"}), "ok"),
        (json!({"image": "r.io:5000/port:1@sha256:22"}), "ok"),
        (json!({"image": "r.io/more:latest"}), "ImageNotPinned"),
        (json!({"image": "evil.io/img@sha256:22"}), "ImageNotAllowed"),
        (json!({"image": "r.io/more-evil@sha256:22"}), "ImageNotAllowed"),
        (json!({"imageName": "office"}), "ok"),
        (json!({"imageName": "offic"}), "ImageUnknown"),
        (json!({"imageName": "tagged"}), "ImageNotPinned"),
        // Being named allows the name, and neither the reference nor its repository.
        (json!({"image": "r.io/office@sha256:33"}), "ImageNotAllowed"),
        (json!({"image": "r.io/office@sha256:44"}), "ImageNotAllowed"),
    ] {
        let skills = [skill("blue", "a", json!({}), json!({"sandbox": asked}))];
        let runtime = runtime("blue", json!({"sandbox": sandbox}));
        assert_eq!(
            view(&runtime, false, Audience::All, &skills),
            [format!("blue/a Listed {expected}")],
            "{asked}"
        );
    }
}

/// A stock install has such a runtime.
#[test]
fn a_runtime_that_names_no_resources_has_the_default_ones_as_ceiling() {
    for (sandbox, asked, expected) in [
        (json!({}), json!({"limits": {"memory": "512Mi", "cpu": "1"}}), "ok"),
        (
            json!({}),
            json!({"limits": {"memory": "513Mi"}}),
            "ResourcesOverCeiling",
        ),
        (json!({}), json!({"requests": {"cpu": "2"}}), "ResourcesOverCeiling"),
        (
            json!({}),
            json!({"limits": {"ephemeral-storage": "65Mi"}}),
            "ResourcesOverCeiling",
        ),
        (
            json!({}),
            json!({"limits": {"nvidia.com/gpu": 1}}),
            "ResourcesOverCeiling",
        ),
        (
            json!({"resources": {"requests": {"memory": "64Mi"}}}),
            json!({"limits": {"memory": "1Gi"}}),
            "ResourcesOverCeiling",
        ),
        (
            json!({"maxResources": {"memory": "1Gi"}}),
            json!({"limits": {"memory": "1Gi", "cpu": "1"}}),
            "ok",
        ),
        (
            json!({"maxResources": {"memory": "1Gi"}}),
            json!({"limits": {"cpu": "2"}}),
            "ResourcesOverCeiling",
        ),
    ] {
        let skills = [skill("blue", "a", json!({}), json!({"sandbox": {"resources": asked}}))];
        let runtime = runtime("blue", json!({"sandbox": sandbox}));
        assert_eq!(
            view(&runtime, false, Audience::All, &skills),
            [format!("blue/a Listed {expected}")],
            "{sandbox} {asked}"
        );
    }
}

#[test]
fn an_unknown_name_of_an_image_is_reported_with_those_that_there_are() {
    let images = json!([{"name": "node", "image": "r.io/n@sha256:1"}, {"name": "office", "image": "r.io/o@sha256:1"}]);
    for (images, said) in [(json!([]), "(it has none)"), (images, "(it has node, office)")] {
        let skill = skill("blue", "a", json!({}), json!({"sandbox": {"imageName": "offic"}}));
        let (runtime, none) = (
            runtime("blue", json!({"sandbox": {"images": images}})),
            NamespaceLabels::new(),
        );
        let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
        let refused = selected[0].accepted.as_ref().unwrap_err();
        assert_eq!(refused.reason, RejectionReason::ImageUnknown);
        let message = &refused.message;
        assert!(
            message.contains("imageName offic:") && message.contains(said),
            "{message}"
        );
    }
}

#[test]
fn what_cannot_be_served_says_so() {
    let suspended = skill("blue", "a", json!({}), json!({"suspend": true}));
    let mut unready = skill("blue", "b", json!({}), json!({}));
    unready.status = None;
    let seen = view(&runtime("blue", json!({})), false, Audience::All, &[suspended, unready]);
    assert_eq!(seen, ["blue/a Listed Suspended", "blue/b Listed NotReady"]);
}

#[test]
fn shared_names_are_reported_where_a_caller_sees_both() {
    let both = |from: &str| {
        [
            skill("blue", "a", json!({}), json!({})),
            skill("red", "a", json!({}), allowed(from)),
        ]
    };
    let everyone = runtime("blue", json!({"skillSelector": {"namespaceSelector": {}}}));
    assert_eq!(
        view(&everyone, false, Audience::All, &both("All")),
        ["blue/a Listed ok", "red/a Listed ok,NameShared"],
        "the runtime's own namespace keeps the name"
    );
    let home = runtime("home", json!({}));
    assert_eq!(
        view(&home, true, Audience::All, &both("SameOrClusterDefault")),
        ["blue/a Listed ok", "red/a Listed ok"],
        "tenants that never meet"
    );
    assert_eq!(
        view(&home, true, Audience::Namespace("blue"), &both("All")),
        ["blue/a Listed ok", "red/a Listed ok,NameShared"],
        "whatever others share, a caller's own skill keeps its name"
    );
    assert_eq!(
        view(&home, true, Audience::Namespace("grey"), &both("All")),
        ["red/a Listed ok"],
        "who sees one of them sees its plain name"
    );
}

/// `verdict: message` of a template at a runtime that pins it or not.
fn template(mode: &str, pin: Option<Value>) -> String {
    let mut skill = skill("blue", "sum", json!({}), json!({"activation": {"mode": mode}}));
    let status = skill.status.as_mut().unwrap();
    status.inputs = serde_json::from_value(json!([{"name": "article", "required": true}, {"name": "length"}])).unwrap();
    let mut pins = Vec::new();
    if let Some(inputs) = pin {
        pins.push(json!({"name": "sum", "mode": mode, "inputs": inputs}));
    }
    let runtime = runtime(
        "blue",
        json!({"maxActivation": "Always", "skillSelector": {"skills": pins}}),
    );
    let none = NamespaceLabels::new();
    let scope = scope(&none);
    let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
    match &selected[0].accepted {
        Ok(None) => "served".to_owned(),
        Ok(Some(note)) => format!("{}: {}", note.reason.as_str(), note.message),
        Err(rejection) => panic!("{rejection:?}"),
    }
}

#[test]
fn required_inputs_without_values_are_reported_where_only_a_pin_can_give_them() {
    for (mode, pin, expected) in [
        (
            "Always",
            None,
            "InputsMissing: required inputs have no value in mode Always: article;",
        ),
        (
            "Auto",
            None,
            "InputsMissing: required inputs have no value in mode Auto: article;",
        ),
        ("Listed", None, "served"),
        ("OnRequest", None, "served"),
        ("Always", Some(json!({})), "InputsMissing"),
        ("Always", Some(json!({"article": ""})), "InputsMissing"),
        ("Always", Some(json!({"article": "A"})), "served"),
        ("Listed", Some(json!({"length": "short"})), "served"),
        (
            "Listed",
            Some(json!({"lenght": "short"})),
            "InputsUnknown: the pin sets inputs that the skill does not declare: lenght;",
        ),
    ] {
        let said = template(mode, pin.clone());
        assert!(said.starts_with(expected), "{mode} {pin:?}: {said}");
    }
}

/// `verdict: message` and the state of a skill with packages at a runtime.
fn packaged(declared: &Value, skill_spec: Value, rules: Value) -> (String, Option<String>) {
    let mut skill = skill("blue", "pdf", json!({}), skill_spec);
    skill.status.as_mut().unwrap().packages = serde_json::from_value(declared.clone()).unwrap();
    let runtime = runtime("blue", rules);
    let none = NamespaceLabels::new();
    let scope = Scope {
        allow_image_tags: true,
        ..scope(&none)
    };
    let selected = select(&runtime, &scope, Audience::All, std::slice::from_ref(&skill));
    let said = match &selected[0].accepted {
        Ok(None) => "served".to_owned(),
        Ok(Some(note)) => format!("{}: {}", note.reason.as_str(), note.message),
        Err(rejection) => format!("refused {}: {}", rejection.reason.as_str(), rejection.message),
    };
    (
        said,
        packages(&runtime, Revision::newest(&skill), &scope).map(|verdict| verdict.state.to_string()),
    )
}

#[test]
fn a_runtime_says_which_packages_its_skills_may_have() {
    let locked = json!({"source": "requirements.txt", "locked": true, "python": ["mcp==2.1"]});
    let open = json!({"source": "requirements.txt", "python": ["mcp>=1"]});
    let empty = json!({"source": "requirements.txt"});
    let rules = |packages: Value| json!({"packages": packages});
    for (declared, skill_spec, spec, said, state) in [
        (&empty, json!({}), rules(json!({"allowed": "None"})), "served", None),
        (
            &locked,
            json!({}),
            rules(json!({"allowed": "None"})),
            "refused PackagesNotAllowed: spec.packages.allowed of the runtime is None",
            Some("Refused"),
        ),
        (
            &locked,
            json!({}),
            rules(json!({"allowed": "Standard"})),
            "refused PackagesNotAllowed: spec.packages.allowed of the runtime is Standard",
            Some("Refused"),
        ),
        // Nothing is installed for it anyway.
        (
            &open,
            json!({"sandbox": {"image": "r.io/office"}}),
            json!({"sandbox": {"allowedImages": ["r.io/office"]}, "packages": {"allowed": "None"}}),
            "served",
            Some("PackagesOff"),
        ),
    ] {
        let (reported, found) = packaged(declared, skill_spec, spec.clone());
        assert!(reported.starts_with(said), "{declared} {spec}: {reported}");
        assert_eq!(found.as_deref(), state, "{declared} {spec}");
    }
}

#[test]
fn packages_are_judged_by_the_rules_of_the_runtime() {
    let open = json!({"source": "requirements.txt", "python": ["mcp>=1"]});
    let locked = json!({"source": "requirements.txt", "locked": true, "python": ["mcp==2.1"]});
    let refused = json!({"source": "requirements.txt", "refused": "requirements.txt:1: no"});
    let empty = json!({"source": "requirements.txt"});
    let image = json!({"sandbox": {"image": "r.io/office@sha256:00", "allowedImages": ["r.io/office"]}});
    let rules = |packages: Value| json!({"packages": packages});
    for (declared, skill_spec, spec, said, state) in [
        (
            &Value::Null,
            json!({}),
            rules(json!({"requireLock": true})),
            "served",
            None,
        ),
        (&empty, json!({}), rules(json!({"requireLock": true})), "served", None),
        (
            &open,
            json!({}),
            json!({}),
            "PackagesMissing: its code runs without",
            Some("PackagesOff"),
        ),
        (
            &open,
            json!({}),
            image.clone(),
            "PackagesMissing: its code may run without the packages that it declares: packages are not installed on this cluster; the code can use only what r.io/office@sha256:00 contains; set packages.repository",
            Some("PackagesOff"),
        ),
        (
            &open,
            json!({"sandbox": {"image": "r.io/office"}}),
            json!({"sandbox": {"allowedImages": ["r.io/office"]}}),
            "served",
            Some("PackagesOff"),
        ),
        (
            &refused,
            json!({}),
            image,
            "PackagesMissing: its code runs without the packages that it declares: requirements.txt:1",
            Some("Refused"),
        ),
        (
            &open,
            json!({}),
            rules(json!({"requireLock": true})),
            "refused LockRequired: packages are declared without a lock",
            Some("Refused"),
        ),
        (
            &locked,
            json!({}),
            rules(json!({"requireLock": true})),
            "PackagesMissing",
            Some("PackagesOff"),
        ),
        (
            &locked,
            json!({}),
            rules(json!({"constraints": ["mcp<2"]})),
            "refused PackagesConflict: mcp==2.1 is pinned",
            Some("Conflict"),
        ),
        (
            &open,
            json!({}),
            rules(json!({"constraints": ["mcp<2"]})),
            "PackagesMissing",
            Some("PackagesOff"),
        ),
        (
            &open,
            json!({}),
            rules(json!({"constraints": ["mcp"]})),
            "refused PackagesConflict: spec.packages.constraints[0]: ",
            Some("Conflict"),
        ),
    ] {
        let (reported, found) = packaged(declared, skill_spec, spec.clone());
        assert!(reported.starts_with(said), "{declared} {spec}: {reported}");
        assert_eq!(found.as_deref(), state, "{declared} {spec}");
    }
}
