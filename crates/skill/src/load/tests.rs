//! Loads of whole folders: what is served, what is reported, what is refused.

use std::collections::BTreeMap;

use super::{LoadInput, LoadResult, SpecOverrides, load};
use crate::model::{ActivationMode, AskedPackages, Dialect, SandboxRequest, SkillFile, SkillRef};
use crate::problem::{ProblemKind, Profile, Severity};
use crate::tools::ToolDeclaration;

pub(super) fn files(entries: &[(&str, &[u8])]) -> BTreeMap<String, SkillFile> {
    let file = |bytes: &[u8]| SkillFile {
        bytes: bytes.into(),
        executable: false,
    };
    entries
        .iter()
        .map(|(path, bytes)| ((*path).to_owned(), file(bytes)))
        .collect()
}

pub(super) fn load_files(entries: &[(&str, &[u8])], profile: Profile, overrides: SpecOverrides) -> LoadResult {
    let id = SkillRef {
        namespace: "default".to_owned(),
        name: "demo".to_owned(),
    };
    load(LoadInput {
        id,
        files: files(entries),
        overrides,
        profile,
    })
}

pub(super) fn load_text(text: &str, profile: Profile) -> LoadResult {
    load_files(&[("SKILL.md", text.as_bytes())], profile, SpecOverrides::default())
}

fn kinds(loaded: &LoadResult) -> Vec<(ProblemKind, Option<u32>)> {
    loaded
        .problems
        .iter()
        .map(|problem| (problem.kind, problem.line))
        .collect()
}

#[test]
fn a_plain_skill_loads_without_a_problem_in_both_profiles() {
    for profile in [Profile::Load, Profile::Strict] {
        let loaded = load_text(
            "---\nname: demo\ndescription: Does it.\nlicense: MIT\n---\n# Body\n",
            profile,
        );
        assert_eq!(loaded.problems, []);
        let skill = loaded.skill.unwrap();
        assert_eq!(
            (skill.title.as_str(), skill.description.as_str(), skill.body.as_str()),
            ("demo", "Does it.", "# Body")
        );
        assert_eq!(
            (skill.dialect, skill.activation),
            (Dialect::AgentSkills, ActivationMode::Listed)
        );
        assert_eq!(skill.extra["license"], "MIT");
    }
}

#[test]
fn all_problems_are_reported_at_once_with_their_lines() {
    let text = "---\nname: other\ndescription:\nversion: 1.0\nfoo: 1\nactivation: sometimes\ninputs:\n  - label: x\n\
                tools:\n  - name: t\n---\n{{a}}";
    let loaded = load_text(text, Profile::Load);
    assert!(loaded.skill.is_some());
    assert_eq!(
        kinds(&loaded),
        [
            (ProblemKind::DescriptionMissing, Some(3)),
            (ProblemKind::VersionInvalid, Some(4)),
            (ProblemKind::FieldUnknown, Some(5)),
            (ProblemKind::FieldInvalid, Some(6)),
            (ProblemKind::InputInvalid, Some(8)),
            (ProblemKind::ToolInvalid, Some(10)),
            (ProblemKind::ToolInvalid, Some(10)),
        ]
    );
    let strict = load_text(text, Profile::Strict);
    assert!(strict.skill.is_none());
    assert!(
        strict
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .count()
            >= 5
    );
}

#[test]
fn a_placeholder_is_reported_with_its_own_line() {
    let loaded = load_text(
        "---\nname: demo\ndescription: d\ninputs:\n  - name: a\n---\n{{a}}\n\n{{b}}\n",
        Profile::Strict,
    );
    assert_eq!(kinds(&loaded), [(ProblemKind::PlaceholderUndeclared, Some(9))]);
}

#[test]
fn yaml_over_its_bounds_is_reported_as_such() {
    let loaded = load_text(&format!("---\na: {}\n---\n", "[".repeat(100)), Profile::Load);
    assert!(
        loaded.problems[0].message.contains("nested too deep"),
        "{}",
        loaded.problems[0]
    );
    assert!(loaded.problems[0].help.contains("flatter"), "{}", loaded.problems[0]);
}

#[test]
fn output_cap_above_the_maximum_is_reported() {
    for (bytes, expected) in [
        (None, None),
        (Some(1 << 20), None),
        (
            Some((1 << 20) + 1),
            Some("spec.sandbox.maxOutputBytes 1048577 is above the highest cap, which is used: 1048576"),
        ),
    ] {
        let overrides = SpecOverrides {
            sandbox: Some(SandboxRequest {
                max_output_bytes: bytes,
                ..SandboxRequest::default()
            }),
            ..SpecOverrides::default()
        };
        let text = b"---\nname: demo\ndescription: d\n---\nB";
        let loaded = load_files(&[("SKILL.md", text)], Profile::Load, overrides);
        assert_eq!(loaded.skill.unwrap().sandbox.max_output_bytes, bytes);
        let found: Vec<&str> = loaded.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn the_manifest_wins_over_the_frontmatter() {
    let overrides = SpecOverrides {
        version: Some("01.4.99999999999999999999".to_owned()),
        activation: Some(ActivationMode::Always),
        tags: Some(vec![" PDF ".to_owned()]),
        tools: Some(vec![ToolDeclaration {
            name: "x".to_owned(),
            description: "d".to_owned(),
            command: vec!["python3".to_owned()],
            ..ToolDeclaration::default()
        }]),
        inputs: None,
        ids: Some(vec!["litellm:skill_abc".to_owned(), "skill_abc".to_owned()]),
        sandbox: Some(SandboxRequest {
            timeout_seconds: Some(5),
            ..SandboxRequest::default()
        }),
        packages: Some(AskedPackages {
            python: vec!["pillow>=10".to_owned()],
            ..AskedPackages::default()
        }),
    };
    let text = b"---\nname: demo\ndescription: d\nmode: off\ntags: [a]\ntimeout_ms: 9000\n---\nB";
    let skill = load_files(&[("SKILL.md", text)], Profile::Load, overrides.clone())
        .skill
        .unwrap();
    assert_eq!(
        (skill.version.as_deref(), skill.activation),
        (Some("01.4.99999999999999999999"), ActivationMode::Always)
    );
    assert_eq!(skill.ids, ["skill_abc"]);
    assert_eq!(skill.requirements, overrides.packages);
    assert_ne!(skill.environment_id(), skill.digest);
    assert_eq!(
        (skill.tags, skill.tools.len(), skill.sandbox.timeout_seconds),
        (vec!["pdf".to_owned()], 1, Some(5))
    );
    let text = b"---\nname: demo\ndescription: d\nversion: 1.4.1\n---\nB";
    let loaded = load_files(&[("SKILL.md", text)], Profile::Load, overrides);
    assert!(loaded.skill.is_none());
    assert_eq!(kinds(&loaded), [(ProblemKind::VersionMismatch, Some(4))]);
}

/// A registry gives the version of an upload back as that of the Skill, so what a frontmatter may have a Skill may have.
#[test]
fn a_version_that_a_frontmatter_may_have_may_be_that_of_the_skill() {
    let text = b"---\nname: demo\ndescription: d\nversion: 2024.01.15\n---\nB";
    let version = Some("2024.01.15".to_owned());
    let overrides = SpecOverrides {
        version: version.clone(),
        ..SpecOverrides::default()
    };
    for overrides in [SpecOverrides::default(), overrides] {
        let skill = load_files(&[("SKILL.md", text)], Profile::Load, overrides)
            .skill
            .unwrap();
        assert_eq!(skill.version, version);
    }
}

#[test]
fn words_of_the_omniroute_dialect_set_the_activation() {
    for (line, expected) in [
        ("mode: on", ActivationMode::Always),
        ("mode: off", ActivationMode::Never),
        ("mode: true", ActivationMode::Always),
        ("mode: auto", ActivationMode::Auto),
        ("activation: OnRequest", ActivationMode::OnRequest),
        ("activation: {mode: auto, tags: [x]}", ActivationMode::Auto),
        ("enabled: false", ActivationMode::Never),
        ("mode: llm", ActivationMode::Listed),
    ] {
        let loaded = load_text(
            &format!("---\nname: demo\ndescription: d\n{line}\n---\nB"),
            Profile::Load,
        );
        assert_eq!(loaded.skill.unwrap().activation, expected, "{line}");
    }
}

#[test]
fn dialects_are_recognised_by_their_own_keys() {
    for (lines, expected) in [
        ("metadata: {a: b}", Dialect::AgentSkills),
        ("model: gpt-5", Dialect::AgentSkills),
        ("tools: [Read, Bash]", Dialect::AgentSkills),
        ("inputs:\n  - name: a", Dialect::AgentFlow),
        ("model: {temperature: 0.3}", Dialect::AgentFlow),
        ("mode: llm", Dialect::Husk),
        ("mode: llm\nmodel: {name: gpt-5}", Dialect::Husk),
        ("route: /x", Dialect::Husk),
        ("serve: page.html", Dialect::Husk),
        ("method: GET\noutput: json", Dialect::Husk),
        ("max_tokens: 5", Dialect::Husk),
        ("inputs:\n  - name: a\noutput: json", Dialect::AgentFlow),
        ("tools:\n  - {name: t, description: d, command: [x]}", Dialect::Husk),
    ] {
        let loaded = load_text(
            &format!("---\nname: demo\ndescription: d\n{lines}\n---\nB"),
            Profile::Load,
        );
        assert_eq!(loaded.skill.unwrap().dialect, expected, "{lines}");
    }
}

#[test]
fn a_husk_manifest_is_read_by_its_own_rules() {
    for (lines, errors) in [
        ("name: Route Skill\nroute: /x", vec![]),
        ("name: Route Skill\nroute: x", vec![]),
        ("name: Route Skill\nroute: 5", vec!["route"]),
        ("name: Mode\nmode: banana\nrun: ./x", vec!["mode"]),
        ("name: Address\nproxy_url: https://u", vec![]),
        ("name: Address\nmode: llm\nproxy_url: https://u", vec!["proxy_url"]),
        ("name: Time\ntimeout_ms: 1500.5", vec![]),
        ("name: Time\ntimeout_ms: '5000'", vec!["timeout_ms"]),
        ("name: Static\nmode: static-file\nserve: page.html", vec![]),
        ("name: Static\nmode: static-file", vec!["serve"]),
        ("name: Cheap\nmode: llm\nmodel: gpt-5-mini\nmax_tokens: 512", vec![]),
        ("name: Cheap\nmode: llm\nmodel: {temperature: 0.3}", vec![]),
        ("name: Cheap\nmode: llm\nmodel: [gpt-5-mini]", vec!["model"]),
    ] {
        let text = format!("---\n{lines}\ndescription: d\n---\nB");
        let refused = |profile| -> Vec<String> {
            let problems = load_text(&text, profile).problems.into_iter();
            problems
                .filter(|problem| problem.severity == Severity::Error)
                .map(|problem| problem.field)
                .collect()
        };
        assert_eq!(refused(Profile::Strict), errors, "{lines}");
        assert!(refused(Profile::Load).is_empty(), "{lines}");
    }
}

/// Warnings of both profiles, at the line of the text; tools of a manifest are named by their field in it.
#[test]
fn placeholders_that_stay_as_they_are_are_named() {
    let tool = "- {name: t, description: d, command: [python3, t.py, \"${API_KEY}\"]}";
    let text = format!(
        "---\nname: demo\ndescription: Uses ${{CLAUDE_SKILL_DIR}}\ntool_env: {{KEY: v}}\ntools:\n  {tool}\n---\nB\n\nRun ${{CLAUDE_SKILL_DIR}}/t.py\n"
    );
    let declared = ToolDeclaration {
        name: "t".to_owned(),
        description: "d".to_owned(),
        command: ["python3", "t.py", "${API_KEY}"].map(str::to_owned).into(),
        ..ToolDeclaration::default()
    };
    let from_spec = SpecOverrides {
        tools: Some(vec![declared]),
        ..SpecOverrides::default()
    };
    for (overrides, file, field, line) in [
        (SpecOverrides::default(), "SKILL.md", "tools[0].command[2]", Some(6)),
        (from_spec, "", "spec.tools[0].command[2]", None),
    ] {
        for profile in [Profile::Load, Profile::Strict] {
            let loaded = load_files(
                &[("SKILL.md", text.as_bytes()), ("t.py", b"")],
                profile,
                overrides.clone(),
            );
            let mut found: Vec<_> = loaded
                .problems
                .iter()
                .map(|problem| {
                    (
                        problem.file.as_str(),
                        problem.field.as_str(),
                        problem.line,
                        problem.severity,
                    )
                })
                .collect();
            found.sort_unstable();
            // HUSK refuses a mapping itself.
            let of_mapping = if profile == Profile::Strict {
                Severity::Error
            } else {
                Severity::Warning
            };
            let mut expected = [
                ("SKILL.md", "tool_env", Some(4), of_mapping),
                ("SKILL.md", "body.${CLAUDE_SKILL_DIR}", Some(10), Severity::Warning),
                (file, field, line, Severity::Warning),
            ];
            expected.sort_unstable();
            assert_eq!(found, expected, "{profile:?}: {:?}", loaded.problems);
        }
    }
}

/// Agent Flow refuses them when a skill is created, and so does an object whose author declares the inputs. Elsewhere
/// they become empty texts.
#[test]
fn undeclared_placeholders_are_refused_where_the_dialect_refuses_them() {
    let from_spec = SpecOverrides {
        inputs: Some(Vec::new()),
        ..SpecOverrides::default()
    };
    let none = SpecOverrides::default;
    for (lines, overrides, refused) in [
        ("inputs:\n  - name: a", none(), true),
        ("model: {temperature: 0.3}", none(), true),
        ("license: MIT", none(), false),
        ("license: MIT", from_spec, true),
        ("inputs:\n  - name: a\nmode: llm", none(), false),
    ] {
        let text = format!("---\nname: demo\ndescription: d\n{lines}\n---\n{{{{a}}}} {{{{b}}}}");
        for profile in [Profile::Load, Profile::Strict] {
            let loaded = load_files(&[("SKILL.md", text.as_bytes())], profile, overrides.clone());
            let kind = ProblemKind::PlaceholderUndeclared;
            let found = loaded
                .problems
                .iter()
                .find(|problem| problem.kind == kind && problem.field == "body.b");
            assert_eq!(
                found.is_some_and(crate::problem::Problem::is_error),
                refused,
                "{lines} {profile:?}"
            );
            assert_eq!(
                loaded.skill.is_none(),
                refused,
                "{lines} {profile:?}: {:?}",
                loaded.problems
            );
        }
    }
}

#[test]
fn ids_of_other_systems_are_read_from_metadata() {
    let load = |value: &str, profile| {
        load_text(
            &format!("---\nname: demo\ndescription: d\nmetadata:\n  skill_id: {value}\n---\nB"),
            profile,
        )
    };
    let loaded = load("litellm_skill_1", Profile::Strict);
    assert_eq!(loaded.problems, []);
    assert_eq!(loaded.skill.unwrap().ids, ["litellm_skill_1"]);
    let loaded = load("[skill_a, litellm:skill_a, 'a b']", Profile::Load);
    assert_eq!(kinds(&loaded), [(ProblemKind::FieldInvalid, Some(5))]);
    assert_eq!(loaded.skill.unwrap().ids, ["skill_a"]);
    assert!(load("'a b'", Profile::Strict).skill.is_none());
}

#[test]
fn a_large_real_skill_loads_with_warnings() {
    let body = "word ".repeat(74 * 1024 / 5);
    let text = format!("---\nname: demo\ndescription: {}\n---\n{body}", "d".repeat(1_068));
    let mut entries = files(&[("SKILL.md", text.as_bytes())]);
    for index in 0..82 {
        let bytes = vec![0xff; 5_600_000 / 82];
        entries.insert(
            format!("assets/{index}.bin"),
            SkillFile {
                bytes: bytes.into(),
                executable: false,
            },
        );
    }
    let id = SkillRef {
        namespace: "default".to_owned(),
        name: "demo".to_owned(),
    };
    let input = LoadInput {
        id,
        files: entries,
        overrides: SpecOverrides::default(),
        profile: Profile::Load,
    };
    let loaded = load(input.clone());
    assert!(loaded.skill.is_some_and(|skill| skill.files.len() == 83));
    let found: Vec<_> = loaded.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(found, [ProblemKind::FileTooLarge, ProblemKind::DescriptionTooLong]);
    assert!(
        load(LoadInput {
            profile: Profile::Strict,
            ..input
        })
        .skill
        .is_none()
    );
}

#[test]
fn what_cannot_be_served_is_refused_with_what_to_do() {
    let long = "x".repeat(1024 * 1024 + 1);
    for (entries, kind) in [
        (vec![("README.md", b"x".as_slice())], ProblemKind::NoSkillMd),
        (
            vec![("SKILL.md", b"---\nname: \xff\n---\n".as_slice())],
            ProblemKind::NotUtf8,
        ),
        (vec![("SKILL.md", long.as_bytes())], ProblemKind::FileTooLarge),
        (
            vec![("SKILL.md", b"---\nname: demo\n".as_slice())],
            ProblemKind::FrontmatterUnclosed,
        ),
        (
            vec![("SKILL.md", b"---\n- a\n---\n".as_slice())],
            ProblemKind::FrontmatterNotMapping,
        ),
        (
            vec![("SKILL.md", b"---\na: [b\n---\n".as_slice())],
            ProblemKind::YamlInvalid,
        ),
        (
            vec![("SKILL.md", b"---\nname: demo\n---\nB".as_slice()), ("../x", b"")],
            ProblemKind::PathInvalid,
        ),
    ] {
        let loaded = load_files(&entries, Profile::Load, SpecOverrides::default());
        assert!(loaded.skill.is_none(), "{kind:?}");
        assert_eq!(loaded.problems[0].kind, kind);
        assert!(!loaded.problems[0].help.is_empty(), "{kind:?}");
    }
}

#[test]
fn a_file_without_frontmatter_is_served_unless_strict() {
    let loaded = load_text("Just text", Profile::Load);
    assert_eq!(loaded.skill.unwrap().description, "demo");
    assert!(load_text("Just text", Profile::Strict).skill.is_none());
}

#[test]
fn an_illegal_identity_is_refused_with_a_legal_one() {
    let id = SkillRef {
        namespace: "default".to_owned(),
        name: "My Skill".to_owned(),
    };
    let entries = files(&[("SKILL.md", b"---\nname: x\n---\nB")]);
    let input = LoadInput {
        id,
        files: entries,
        overrides: SpecOverrides::default(),
        profile: Profile::Load,
    };
    let loaded = load(input);
    assert!(loaded.skill.is_none());
    assert!(loaded.problems[0].help.contains("my-skill"), "{}", loaded.problems[0]);
}

#[test]
fn a_script_that_is_no_file_of_the_skill_is_warned_about() {
    let tool = |name: &str| format!("  - {{name: {name}, description: d, command: [python3, {name}.py]}}\n");
    let text = format!(
        "---\nname: demo\ndescription: d\ntools:\n{}{}---\nB",
        tool("here"),
        tool("gone")
    );
    let files = [("SKILL.md", text.as_bytes()), ("here.py", b"".as_slice())];
    let loaded = load_files(&files, Profile::Load, SpecOverrides::default());
    let found: Vec<_> = loaded
        .problems
        .iter()
        .map(|problem| (problem.kind, problem.field.as_str()))
        .collect();
    assert_eq!(
        found,
        [(ProblemKind::ToolFileMissing, "tools.gone")],
        "{:?}",
        loaded.problems
    );
    assert_eq!(
        loaded.skill.unwrap().tools.len(),
        2,
        "it is served: the file may come from the image"
    );
}

#[test]
fn husk_tools_become_tools_of_the_skill() {
    let text = b"---\nname: Site Checker\ndescription: d\nmode: llm\ntools:\n  - name: check\n    description: c\n    \
                 command: [python3, ./check.py]\n    parameters:\n      - {name: url}\n  - {name: run, description: r, command: bin/run}\n\
                 tool_env: [KEY, OPENAI_API_KEY]\n---\nB";
    let loaded = load_files(
        &[("SKILL.md", text), ("check.py", b"")],
        Profile::Load,
        SpecOverrides::default(),
    );
    let found: Vec<_> = loaded.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(found, [ProblemKind::ToolFileMissing, ProblemKind::FieldInvalid]);
    let skill = loaded.skill.unwrap();
    assert_eq!(
        (skill.title.as_str(), skill.env.as_slice()),
        ("Site Checker", ["KEY".to_owned()].as_slice())
    );
    assert_eq!(skill.tools[0].input_schema["required"], serde_json::json!(["url"]));
}

#[test]
fn unknown_keys_of_tools_and_of_their_parameters_are_warned_about() {
    let text = "---\nname: x\ndescription: d\ntools:\n  - name: t\n    description: c\n    command: [ls]\n    comand: [rm]\n    \
                parameters:\n      - {name: a, description: b, required: false, enum: [p]}\n  - {python: a.py, env: [A]}\n---\nB";
    for profile in [Profile::Load, Profile::Strict] {
        let problems = load_text(text, profile).problems;
        let unknown: Vec<_> = problems
            .iter()
            .filter(|problem| problem.kind == ProblemKind::FieldUnknown)
            .map(|problem| (problem.field.as_str(), problem.severity, problem.line))
            .collect();
        assert_eq!(
            unknown,
            [
                ("tools[0].comand", Severity::Warning, Some(8)),
                ("tools[0].parameters[0].enum", Severity::Warning, Some(10)),
            ],
            "{problems:?}"
        );
    }
}

#[test]
fn a_tool_whose_arguments_name_its_program_is_warned_about_by_name() {
    let text = b"---\nname: Any\ndescription: d\nmode: llm\ntools:\n  - name: any\n    description: c\n    \
                 command: [python3]\n    parameters:\n      - {name: script}\n  - {name: fixed, description: r, command: [python3, x.py]}\n---\nB";
    let loaded = load_files(
        &[("SKILL.md", text), ("x.py", b"")],
        Profile::Strict,
        SpecOverrides::default(),
    );
    let all: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(
        all[0].contains("tool \"any\"") && all[0].contains("environment values") && all[0].contains("name a file"),
        "{all:?}"
    );
    assert_eq!(loaded.skill.unwrap().tools.len(), 2, "it is served");
}

#[test]
fn a_time_limit_is_any_positive_number_of_milliseconds() {
    for (written, seconds) in [
        ("9000", Some(9)),
        ("1500.5", Some(2)),
        ("1e3", Some(1)),
        ("0.5", Some(1)),
        ("1e-30", Some(1)),
        ("1e300", Some(86_400)),
        ("'5000'", None),
        ("0", None),
        ("-1.5", None),
        (".inf", None),
    ] {
        let loaded = load_text(
            &format!("---\nname: demo\ndescription: d\ntimeout_ms: {written}\n---\nB"),
            Profile::Load,
        );
        let found = loaded.problems.iter().any(|problem| problem.field == "timeout_ms");
        assert_eq!(found, seconds.is_none(), "{written}: {:?}", loaded.problems);
        assert_eq!(loaded.skill.unwrap().sandbox.timeout_seconds, seconds, "{written}");
    }
}
