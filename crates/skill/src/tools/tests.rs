use super::*;

#[test]
fn parameters_are_required_by_default() {
    let list = json!([{"name": "t", "description": "d", "command": "python3 t.py",
        "parameters": [{"name": "a", "description": "A"}, {"name": "b", "required": false}]}]);
    let (tools, findings) = read(&list);
    assert_eq!(findings, []);
    assert_eq!(tools[0].command, ["python3", "t.py"]);
    let tool = Tool::from(tools[0].clone());
    let expected = json!({"type": "object", "required": ["a"],
        "properties": {"a": {"type": "string", "description": "A"}, "b": {"type": "string"}}});
    assert_eq!(tool.input_schema, expected);
}

/// Words at line ends must not become one.
#[test]
fn a_description_keeps_its_lines() {
    let list = json!([{"name": " t ", "command": ["x"],
        "description": "Checks a website.\r\nReturns JSON\u{7} with url and\n\tstatus.\n"}]);
    let (tools, findings) = read(&list);
    assert_eq!(findings, []);
    let expected = "Checks a website.\nReturns JSON with url and\n\tstatus.";
    assert_eq!((&*tools[0].name, &*tools[0].description), ("t", expected));
}

#[test]
fn a_name_of_a_parameter_is_a_text_as_that_of_a_tool() {
    for name in [json!(1.5), json!(5), json!(true), json!(null), json!(" ")] {
        let (tools, findings) =
            read(&json!([{"name": "t", "description": "d", "command": ["x"], "parameters": [{"name": name}]}]));
        assert_eq!(tools[0].parameters, [], "{name}");
        assert_eq!(findings[0].field, "tools[0].parameters[0].name", "{name}");
    }
}

#[test]
fn tools_that_cannot_run_are_left_out_and_reported() {
    let (tools, findings) = read(&json!([
        "x", {"description": "d", "command": ["x"]}, {"name": "a", "description": "d", "command": []},
        {"name": "b", "description": "d"}, {"name": "c", "command": ["x"], "parameters": {"q": 1}}
    ]));
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["c"]);
    let fields: Vec<_> = findings.iter().map(|finding| finding.field.as_str()).collect();
    let expected = [
        "tools[0]",
        "tools[1].name",
        "tools[2].command",
        "tools[3].command",
        "tools[4].description",
        "tools[4].parameters",
    ];
    assert_eq!(fields, expected);
    let are_left_out = findings.iter().map(|finding| finding.leaves_out_tool);
    assert_eq!(are_left_out.collect::<Vec<_>>(), [true, true, true, true, false, false]);
    assert!(findings[3].help.starts_with("add `command:`"), "{}", findings[3].help);
}

/// A level that cannot be read must not become the lowest.
#[test]
fn a_risk_is_a_level_in_any_case_and_a_tool_with_another_word_is_left_out() {
    let of = |risk: &Value| read(&json!([{"name": "t", "description": "d", "command": ["x"], "risk": risk}]));
    for (written, expected) in [
        ("Safe", Risk::Safe),
        ("moderate", Risk::Moderate),
        (" DANGEROUS ", Risk::Dangerous),
        ("Critical", Risk::Critical),
    ] {
        let (tools, findings) = of(&json!(written));
        assert_eq!((tools[0].risk, findings.len()), (Some(expected), 0), "{written}");
        assert_eq!(Tool::from(tools[0].clone()).risk, expected);
    }
    for written in [
        json!("auto"),
        json!("high"),
        json!(""),
        json!(null),
        json!(2),
        json!(["Safe"]),
    ] {
        let (tools, findings) = of(&written);
        assert_eq!(tools, [], "{written}");
        let actual = (findings[0].field.as_str(), findings[0].help.as_str());
        assert_eq!(
            actual,
            ("tools[0].risk", "write one of Safe, Moderate, Dangerous, Critical")
        );
    }
    let (tools, _) = read(&json!([{"name": "t", "description": "d", "command": ["x"]}]));
    assert_eq!(
        Tool::from(tools[0].clone()).risk,
        Risk::Safe,
        "a tool that says nothing"
    );
}

#[test]
fn declarations_are_checked_wherever_they_come_from() {
    let tool = |name: &str, command: &[&str]| ToolDeclaration {
        name: name.to_owned(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        ..ToolDeclaration::default()
    };
    let mut with_env = tool("d", &["x"]);
    with_env.env = vec!["OPENAI_API_KEY".to_owned(), "1".to_owned(), "OK".to_owned()];
    with_env.input_schema = Some(json!([]));
    let tools = [tool("", &["x"]), tool("a", &[]), tool("a", &["../x"]), with_env];
    let fields: Vec<_> = check(&tools).into_iter().map(|finding| finding.field).collect();
    let expected = [
        "tools[0].name",
        "tools[1].command",
        "tools[2].name",
        "tools[2].command",
        "tools[3].inputSchema",
        "tools[3].env[0]",
        "tools[3].env[1]",
    ];
    assert_eq!(fields, expected);
}

/// Such a tool would end every request that it is in: a provider refuses the whole request.
#[test]
fn a_tool_whose_schema_is_none_is_refused() {
    for (schema, expected) in [
        (
            json!({"type": "object", "properties": {"x": {"type": "bogus"}}}),
            "properties.x.type must be",
        ),
        (json!({"type": "string"}), "type must be object"),
        (json!({"type": "object", "properties": {"x": {"type": "string"}}}), ""),
        (json!({"x": "string"}), ""),
    ] {
        let (tools, findings) =
            read(&json!([{"name": "t", "description": "d", "command": ["x"], "inputSchema": schema}]));
        assert_eq!(findings, []);
        let found = check(&tools);
        let refused = found.iter().any(|finding| {
            finding.is_refused() && finding.field == "tools[0].inputSchema" && finding.message.contains(expected)
        });
        assert_eq!(refused, !expected.is_empty(), "{schema}: {found:?}");
    }
}

/// Names are requests: a value beside one is not read, and says nothing about what the tool gets.
#[test]
fn environment_values_in_a_skill_are_named_with_what_to_write() {
    for (env, field, help) in [
        (
            json!({"KEY": "${KEY}"}),
            "tools[0].env",
            "write names only; their values come from grants",
        ),
        (
            json!("KEY"),
            "tools[0].env",
            "write names only; their values come from grants",
        ),
        (
            json!(["${KEY}"]),
            "tools[0].env[0]",
            "write KEY; its value comes from a grant",
        ),
        (
            json!(["A", "$KEY"]),
            "tools[0].env[1]",
            "write KEY; its value comes from a grant",
        ),
        (
            json!(["KEY=${OTHER}"]),
            "tools[0].env[0]",
            "write KEY; its value comes from a grant",
        ),
        (json!(["a b"]), "tools[0].env[0]", "use letters, digits and underscores"),
    ] {
        for mut item in [
            json!({"name": "t", "description": "d", "command": ["x"]}),
            json!({"python": "t.py"}),
        ] {
            item["env"] = env.clone();
            let (tools, mut findings) = read(&json!([item]));
            findings.extend(check(&tools));
            let reported: Vec<_> = findings
                .iter()
                .map(|finding| (finding.field.as_str(), finding.help.as_str()))
                .collect();
            assert_eq!(reported, [(field, help)], "{env}");
        }
    }
    for env in [json!(null), json!([]), json!(["KEY"])] {
        let (tools, findings) = read(&json!([{"name": "t", "description": "d", "command": ["x"], "env": env}]));
        assert_eq!((findings, check(&tools)), (vec![], vec![]));
    }
}

#[test]
fn required_is_read_as_husk_reads_it() {
    for (written, required) in [
        (json!(null), false),
        (json!(false), false),
        (json!(0), false),
        (json!(""), false),
        (json!(true), true),
        (json!("no"), true),
        (json!("false"), true),
        (json!([]), true),
    ] {
        let (tools, _) = read(&json!([{"name": "t", "description": "d", "command": "x",
            "parameters": [{"name": "p", "required": written}]}]));
        assert_eq!(tools[0].parameters[0].required, required, "{written}");
    }
}
