use serde_json::{Value, json};

use super::*;

/// The declarations of a source without any problem.
#[track_caller]
fn tools(source: &str) -> Vec<Value> {
    let report = generate(source);
    assert_eq!(report.problems, [], "{source}");
    report.tools.iter().map(ToolDeclaration::to_value).collect()
}

#[track_caller]
fn input(source: &str, expected: &Value) {
    assert_eq!(&tools(source)[0]["input_schema"], expected, "{source}");
}

#[track_caller]
fn parameter(annotation: &str, expected: &Value) {
    let source = format!("@skill\ndef f(x: {annotation}): pass\n");
    // What the table does not say is a warning.
    let report = generate(&source);
    assert!(!has_errors(&report), "{:?}", report.problems);
    let tool = report.tools[0].to_value();
    assert_eq!(&tool["input_schema"]["properties"]["x"], expected, "{annotation}");
}

/// Whether something is missing from the declarations.
fn has_errors(report: &SchemaReport) -> bool {
    report
        .problems
        .iter()
        .any(|problem| problem.severity == Severity::Error)
}

#[test]
fn type_table_holds_in_all_spellings() {
    for (annotation, expected) in [
        ("str", json!({"type": "string"})),
        ("'int'", json!({"type": "string"})),
        ("list['int']", json!({"type": "array", "items": {"type": "string"}})),
        ("builtins.float", json!({"type": "number"})),
        (
            "typing.List[ typing.Optional[int] ]",
            json!({"type": "array", "items": {"type": "integer"}}),
        ),
        ("List", json!({"type": "array"})),
        ("dict[str, list[int]]", json!({"type": "object"})),
        ("Optional['bool']", json!({"type": "string"})),
        ("Union[str, None, str]", json!({"type": "string"})),
        (
            "Annotated[int, Field(ge=1, description='a | b, c')]",
            json!({"type": "integer", "description": "a | b, c", "minimum": 1}),
        ),
        ("Callable[[int], str]", json!({"type": "string"})),
        ("bytes | None", json!({"type": "string", "contentEncoding": "base64"})),
        ("int | str", json!({"type": "string"})),
        ("list[dict]", json!({"type": "array", "items": {"type": "object"}})),
    ] {
        parameter(annotation, &expected);
    }
}

#[test]
fn future_annotations_and_aliases_are_followed() {
    input(
        "from __future__ import annotations\nTags = list[str]\nMany = Tags\n@tool\ndef f(tags: Many = ()): pass\n",
        &json!({"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}),
    );
}

#[test]
fn what_a_model_cannot_fill_in_is_no_parameter() {
    input(
        "class P:\n  @skill\n  def f(self, a, /, b: int, *args: str, c=1, ctx: SkillContext | None = None, **kw): pass\n",
        &json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"},
            "c": {"type": "string"}}, "required": ["a", "b"]}),
    );
}

#[test]
fn closures_aliases_and_module_names_are_found() {
    let found = tools(
        "from tukuy.skills import skill as s\nimport tukuy\nclass P:\n  def build(self):\n    @s(name='one')\n    \
         async def a(x): ...\n    @other\n    @tukuy.skills.skill\n    def two(x): ...\n    @property\n    def no(x): ...\n",
    );
    let names: Vec<&Value> = found.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(
        (&found[0]["is_async"], &found[1]["is_async"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn keywords_are_read_from_literals_and_constants() {
    let found = tools(
        "TAGS = ['A', \"b\" 'C']\n@skill(\n  name='n', # why\n  description=('one ' \"\\u00e4\\n\" r'\\d' '''x'''),\n  \
         tags=TAGS + ['D'],\n  risk_level=RiskLevel.CRITICAL, hidden=True, icon='star', version='2.0.0',\n  \
         requires_network=True, side_effects=True, estimated_latency_ms=1_500, group=None,\n  \
         examples=[SkillExample({'a': -1}, output=[0x10, 1e3])],\n  config_params=[ConfigParam('k', type='number', min=0, \
         step=.5, scope=ConfigScope.PER_INVOCATION)])\ndef f(x): pass\n",
    );
    let expected = json!({
        "name": "n", "description": "one ä\n\\dx", "tags": ["a", "bc", "d"], "risk_level": "critical", "hidden": true,
        "icon": "star", "version": "2.0.0", "requires_network": true, "side_effects": true, "estimated_latency_ms": 1500,
        "examples": [{"input": {"a": -1}, "output": [16, 1000.0], "description": ""}],
        "config_params": [{"name": "k", "type": "number", "min": 0, "step": 0.5, "scope": "per_call"}],
        "display_name": "N", "category": "general",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[0][name], value, "{name}");
    }
    assert_eq!(found[0].get("group"), None);
}

#[test]
fn explicit_schemas_win_and_may_be_types_or_models() {
    let found = tools(
        "class M(BaseModel):\n  a: int\n@skill(input_schema={'type': 'string'}, output_schema=M)\ndef f(x): pass\n\
         @skill(input_schema=dict)\ndef g(y): pass\n",
    );
    assert_eq!(found[0]["input_schema"], json!({"type": "string"}));
    assert_eq!(found[0]["output_schema"]["title"], "M");
    assert_eq!(found[1]["input_schema"], json!({"type": "object"}));
}

#[test]
fn models_keep_their_fields_constraints_and_references() {
    let source = "class Color(str, Enum):\n  RED = 'red'\n  BLUE = 'blue'\nclass Base(BaseModel):\n  id: int\n\
        class Inner(pydantic.BaseModel):\n  n: float = 1.5\nclass M(Base):\n  '''A model.\n\n    Of two lines.\n  '''\n  \
        model_config = {}\n  _hidden: int = 1\n  kind: ClassVar[str] = 'x'\n  user_name: str = Field(..., min_length=1, \
        description='Who')\n  tags: list[str] = Field(default_factory=list, max_length=3)\n  color: Color = 'red'\n  \
        inner: Optional[Inner] = None\n  mode: Literal['a', 'b'] = 'a'\n  pair: tuple[int, str]\n  any: dict[str, Any]\n\
        @skill\ndef f(m: M): pass\n";
    input(
        source,
        &json!({
            "$defs": {
                "Color": {"enum": ["red", "blue"], "title": "Color", "type": "string"},
                "Inner": {"properties": {"n": {"default": 1.5, "title": "N", "type": "number"}}, "title": "Inner", "type": "object"},
            },
            "description": "A model.\n\nOf two lines.",
            "properties": {
                "id": {"title": "Id", "type": "integer"},
                "user_name": {"description": "Who", "minLength": 1, "title": "User Name", "type": "string"},
                "tags": {"items": {"type": "string"}, "maxItems": 3, "title": "Tags", "type": "array"},
                "color": {"$ref": "#/$defs/Color", "default": "red"},
                "inner": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}], "default": null},
                "mode": {"default": "a", "enum": ["a", "b"], "title": "Mode", "type": "string"},
                "pair": {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}],
                         "title": "Pair", "type": "array"},
                "any": {"additionalProperties": true, "title": "Any", "type": "object"},
            },
            "required": ["id", "user_name", "pair", "any"], "title": "M", "type": "object",
        }),
    );
}

#[test]
fn constants_that_name_themselves_come_to_an_end() {
    let many = (0..200).map(|number| format!("x{number} = f(x{number}, x{number}, x{number})\n"));
    let source = format!(
        "best = max(best, best, best)\n{}@skill\ndef f(n: Annotated[int, Field(le=best)]): pass\n",
        many.collect::<String>()
    );
    assert_eq!(
        tools(&source)[0]["input_schema"]["properties"]["n"],
        json!({"type": "integer"})
    );
}

#[test]
fn limits_beside_a_type_reach_the_schema_of_a_member_and_of_a_parameter() {
    let source = "TOP = 9\nShare = Annotated[float, Field(ge=0, lt=1)]\nclass Mode(str, Enum):\n  A = 'a'\n  B = 'b'\n\
        class M(BaseModel):\n  count: Annotated[int, Field(ge=1, le=TOP, description='How many')]\n  \
        name: Annotated[str, StringConstraints(pattern='^x', max_length=4)] = 'x'\n  \
        tags: Annotated[list[Annotated[str, MaxLen(3)]], Len(1, 5)]\n  \
        page: Optional[Annotated[int, Ge(0)]] = None\n  size: Annotated[int, Field(gt=0)] = Field(2, lt=7)\n  \
        late: Annotated[int, Field(default=3, alias='later')]\n  \
        mode: Mode = Mode.B\n  other: Mode = Field(Mode.A)\n  modes: list[Mode] = [Mode.A, Mode.B]\n  \
        text: str = Mode.A.value\n\
        @skill\ndef f(m: M): pass\n\
        @skill\ndef g(n: Annotated[int, Field(ge=1, le=TOP)], s: Share, w: Annotated[Optional[str], 'A word'] = None, \
        l: list[Annotated[int, Lt(5)]] = []):\n  '''Does.\n\n  Args:\n    n: The number.\n    w: Unused.\n  '''\n";
    let found = tools(source);
    let model = &found[0]["input_schema"];
    let properties = &model["properties"];
    for (name, expected) in [
        (
            "count",
            json!({"type": "integer", "title": "Count", "minimum": 1, "maximum": 9, "description": "How many"}),
        ),
        (
            "name",
            json!({"type": "string", "title": "Name", "pattern": "^x", "maxLength": 4, "default": "x"}),
        ),
        (
            "tags",
            json!({"type": "array", "title": "Tags", "minItems": 1, "maxItems": 5, "items": {"type": "string", "maxLength": 3}}),
        ),
        (
            "page",
            json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "title": "Page", "default": null}),
        ),
        (
            "size",
            json!({"type": "integer", "title": "Size", "exclusiveMinimum": 0, "exclusiveMaximum": 7, "default": 2}),
        ),
        ("later", json!({"type": "integer", "title": "Later", "default": 3})),
        ("mode", json!({"$ref": "#/$defs/Mode", "default": "b"})),
        ("other", json!({"$ref": "#/$defs/Mode", "default": "a"})),
        (
            "modes",
            json!({"type": "array", "title": "Modes", "items": {"$ref": "#/$defs/Mode"}, "default": ["a", "b"]}),
        ),
        ("text", json!({"type": "string", "title": "Text", "default": "a"})),
    ] {
        assert_eq!(properties[name], expected, "{name}");
    }
    assert_eq!(model["required"], json!(["count", "tags"]));
    assert_eq!(
        found[1]["input_schema"]["properties"],
        json!({
            "n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "The number."},
            "s": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            "w": {"type": "string", "description": "A word"},
            "l": {"type": "array", "items": {"type": "integer", "exclusiveMaximum": 5}},
        })
    );
}

#[test]
fn literals_may_hold_none_and_lengths_of_optional_lists_are_of_items() {
    let found = tools(
        "class M(BaseModel):\n  mode: Literal['a', None, 1, True]\n  tags: Optional[list[str]] = Field(None, max_length=3)\n  \
         name: Optional[str] = Field(None, min_length=2)\n@skill\ndef f(m: M): pass\n",
    );
    let properties = &found[0]["input_schema"]["properties"];
    assert_eq!(properties["mode"]["enum"], json!(["a", null, 1, true]));
    assert_eq!(
        (&properties["tags"]["maxItems"], properties["tags"].get("maxLength")),
        (&json!(3), None)
    );
    assert_eq!(properties["name"]["minLength"], 2);
}

#[test]
fn a_model_that_holds_itself_is_a_reference() {
    input(
        "class Node(BaseModel):\n  children: list['Node'] = []\n@skill\ndef f(n: Node): pass\n",
        &json!({"$defs": {"Node": {"properties": {"children": {"default": [], "items": {"$ref": "#/$defs/Node"},
            "title": "Children", "type": "array"}}, "title": "Node", "type": "object"}}, "$ref": "#/$defs/Node"}),
    );
}

#[test]
fn definitions_of_several_parameters_are_at_the_root() {
    let found = tools(
        "class I(BaseModel):\n  a: int\nclass M(BaseModel):\n  i: I\n@skill\ndef f(m: M, many: list[M], n: int): pass\n",
    );
    let schema = &found[0]["input_schema"];
    assert_eq!(schema["$defs"]["I"]["title"], "I");
    assert_eq!(schema["properties"]["m"].get("$defs"), None);
    assert_eq!(schema["properties"]["many"]["items"].get("$defs"), None);
}

#[test]
fn provider_forms_always_hold_an_object_of_properties() {
    let report = generate("@skill\ndef a(): pass\n@skill(input_schema=str)\ndef b(body): pass\n");
    assert_eq!(
        report.tools[0].openai_tool(),
        json!({"type": "function", "function": {"name": "a", "description": "No description.",
            "parameters": {"type": "object", "properties": {}}}})
    );
    assert_eq!(
        report.tools[1].anthropic_tool()["input_schema"],
        json!({"type": "object", "properties": {"body": {"type": "string"}}, "required": ["body"]})
    );
}

#[test]
fn a_syntax_error_has_a_line_and_spoils_no_other_function() {
    let report = generate("@skill\ndef a(x: int): pass\n\n@skill\ndef b(x: int:\n    pass\n\n@skill\ndef c(y): pass\n");
    assert!(has_errors(&report));
    let first = &report.problems[0];
    assert!((4..=6).contains(&first.line), "{first}");
    assert!(
        report.tools.iter().any(|tool| tool.name == "a"),
        "{:?}",
        report.problems
    );
}

#[test]
fn what_only_running_would_show_is_a_warning_with_its_line() {
    let report =
        generate("import os\n@skill(\n  description=os.environ['X'],\n  tags=make(), odd=1)\ndef f(x):\n  'Doc.'\n");
    assert!(!has_errors(&report));
    let seen: Vec<(usize, &str)> = report.problems.iter().map(|p| (p.line, p.message.as_str())).collect();
    assert_eq!(
        seen,
        [
            (
                3,
                "the value of description cannot be read from the source text and stays at its default"
            ),
            (
                4,
                "the value of tags cannot be read from the source text and stays at its default"
            ),
            (4, "odd is not a keyword of the decorator and is left out"),
        ]
    );
    assert_eq!(report.tools[0].description, "Doc.");
    assert_eq!(report.problems[0].function.as_deref(), Some("f"));
}

/// A level that is lower than the text's would let the function pass a limit.
#[test]
fn what_a_risk_follows_from_and_cannot_be_read_is_an_error_with_its_line() {
    for (keyword, said) in [
        ("risk_level='high'", "risk_level is not one of"),
        ("risk_level=level()", "risk_level is not one of"),
        ("side_effects=bool(1)", "the value of side_effects cannot be read"),
        ("requires_network=1 > 0", "the value of requires_network cannot be read"),
        (
            "requires_filesystem='yes'",
            "the value of requires_filesystem cannot be read",
        ),
    ] {
        let report = generate(&format!("@skill(\n  {keyword})\ndef f(x):\n  'Doc.'\n"));
        let problem = &report.problems[0];
        assert_eq!((problem.severity, problem.line), (Severity::Error, 2), "{keyword}");
        assert!(problem.message.contains(said), "{}", problem.message);
    }
}

#[test]
fn positional_arguments_and_twin_names_are_reported() {
    let report = generate("@skill('n')\ndef f(x): pass\n@skill\ndef g(x): pass\n@skill(name='g')\ndef h(x): pass\n");
    let seen: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen[0].starts_with("line 1, column 8: error: f: the decorator takes named arguments only."),
        "{seen:?}"
    );
    assert!(seen[1].contains("a second tool has the name \"g\""), "{seen:?}");
}

#[test]
fn odd_files_give_a_report_and_no_crash() {
    let deep = format!(
        "@skill(tags={}{})\ndef f(x: {}int{}): pass\n",
        "[".repeat(3000),
        "]".repeat(3000),
        "list[".repeat(3000),
        "]".repeat(3000)
    );
    let aliases = "A = B\nB = A\n@skill(name=A)\ndef f(x: A): pass\nclass C(D): pass\nclass D(C):\n  x: C\n@skill\ndef g(c: C): pass\n";
    for source in [
        "",
        "\u{feff}@skill\ndef f(x): pass\n",
        "\0\0",
        "@skill\n",
        "@skill(\n",
        "def",
        &deep,
        aliases,
        "@skill\nclass X: pass\n",
        "x = '\\",
        "A = list[A]\ndef f(x: A): pass\n",
        "A = list[A] | List[A] | dict[str, A] | 'list[A]'\n@skill\ndef f(x: A): pass\ndef g(x: A): pass\n",
        "A = list[A] | List[A] | Sequence[A]\ndef f(x: A): pass\n",
        "class M(BaseModel, M, M, M, M, M):\n  a: int\n@dataclass\nclass D(D, D, D, D, D):\n  a: D\ndef f(m: M, d: D): pass\n",
    ] {
        let report = generate(source);
        assert!(report.tools.len() <= 2, "{source:.80}");
    }
    let large = generate(&"#".repeat((1 << 20) + 1));
    assert!(has_errors(&large) && large.tools.is_empty());
}

#[test]
fn nothing_of_the_file_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("ran");
    let source = format!("open({marker:?}, 'w').write('x')\n@skill\ndef f(x=open({marker:?}, 'w')): pass\n");
    assert_eq!(generate(&source).tools.len(), 1);
    assert!(!marker.exists());
}

/// A source that uses most of what is read.
const RICH: &str = "T = [1]\nclass M(BaseModel):\n  a: Optional[list['M']] = Field(None, ge=1)\n@skill(name='x', tags=[\"a\"], \
    config_params=[ConfigParam(name='k')])\nasync def f(self, m: M, *, b: Union[int, None] = -1) -> dict[str, int]:\n  \
    '''Doc.\n\n  Args:\n    b (int): B.\n  '''\n";

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 128, ..Default::default() })]

    #[test]
    fn any_text_gives_a_report(text in "(?s).{0,300}") {
        generate(&text);
        parameter_descriptions(&text);
        display_name(&text, None);
    }

    #[test]
    fn a_broken_source_gives_a_report(cut in 0..RICH.len(), at in 0..RICH.len(), piece in "[\\[\\]()'\":@,|\\\\\n a-c]{0,6}") {
        // RICH is ASCII, so every byte is a character.
        let mut text = RICH[..cut.max(1)].to_owned();
        text.insert_str(at.min(text.len()), &piece);
        for problem in generate(&text).problems {
            proptest::prop_assert!(problem.line >= 1 && !problem.message.is_empty());
        }
    }
}
