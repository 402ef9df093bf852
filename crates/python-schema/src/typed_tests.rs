//! Types of parameters that JSON Schema can say, and those that it cannot.

use serde_json::{Value, json};

use super::generate;

/// The schema of the parameter `x` of a function without a decorator, and what is said about it.
fn schema(before: &str, annotation: &str, decorator: &str) -> (Value, Vec<String>) {
    let report = generate(&format!(
        "{before}\n{decorator}def f(x: {annotation}, n: int = 1): pass\n"
    ));
    let told = report.problems.iter().map(|problem| problem.message.clone()).collect();
    let tool = report.tools[0].to_value();
    let mut schema = tool["input_schema"]["properties"]["x"].clone();
    if let Some(definitions) = tool["input_schema"].get("$defs") {
        schema["$defs"] = definitions.clone();
    }
    (schema, told)
}

#[track_caller]
fn says(before: &str, annotation: &str, expected: &Value) {
    assert_eq!(
        schema(before, annotation, ""),
        (expected.clone(), Vec::new()),
        "{annotation}"
    );
}

#[test]
fn a_function_without_a_decorator_has_all_types_that_json_schema_has() {
    let string = json!({"type": "string"});
    let integer = json!({"type": "integer"});
    for (annotation, expected) in [
        ("int | str", json!({"anyOf": [integer, string]})),
        ("Union[int, str, None]", json!({"anyOf": [integer, string]})),
        ("Optional[int]", integer.clone()),
        ("Literal['a', 'b']", json!({"type": "string", "enum": ["a", "b"]})),
        ("Literal['a'] | None", json!({"type": "string", "enum": ["a"]})),
        ("Literal[1, 'a', None]", json!({"enum": [1, "a", null]})),
        ("'int'", integer.clone()),
        (
            "'list[int] | str'",
            json!({"anyOf": [{"type": "array", "items": integer}, string]}),
        ),
        (
            "list[int | str]",
            json!({"type": "array", "items": {"anyOf": [integer, string]}}),
        ),
        (
            "set[int]",
            json!({"type": "array", "items": integer, "uniqueItems": true}),
        ),
        ("Sequence[str]", json!({"type": "array", "items": string})),
        (
            "tuple[int, str]",
            json!({"type": "array", "prefixItems": [integer, string], "minItems": 2, "maxItems": 2}),
        ),
        ("tuple[int, ...]", json!({"type": "array", "items": integer})),
        ("dict[str, int]", json!({"type": "object"})),
        ("datetime | int", json!({"anyOf": [string, integer]})),
        ("Any", string.clone()),
        (
            "Annotated[int | str, Field(description='Either')]",
            json!({"anyOf": [integer, string], "description": "Either"}),
        ),
    ] {
        says("", annotation, &expected);
    }
}

/// Classes of all kinds that the program which calls functions makes of an object or of a text.
const CLASSES: &str = "import enum, dataclasses\n\
class Color(enum.Enum):\n  RED = 'red'\n  BLUE = 'blue'\n\
class Level(IntEnum):\n  LOW = 1\n  HIGH: int = 2\n\
class Auto(enum.Enum):\n  ONE = enum.auto()\n  TWO = enum.auto()\n\
@dataclasses.dataclass(frozen=True)\nclass Point:\n  'A place.'\n  x: float\n  y: float = 0.0\n  tags: list[str] = field(default_factory=list)\n  \
_seen: bool = False\n  total: ClassVar[int] = 3\n  norm: float = field(init=False)\n  note: str = field(repr=False)\n\
@dataclass\nclass Place(Point):\n  color: Color | None = None\n  inside: 'Optional[Place]' = None\n\
class Row(TypedDict, total=False):\n  id: Required[int]\n  name: str\n\
class Full(Row):\n  size: NotRequired[int]\n  when: datetime.date\n\
class Pair(NamedTuple):\n  left: int\n  right: int | str = 2\n";

#[test]
fn classes_of_the_file_are_objects_and_lists_of_values_under_a_decorator_too() {
    let color = json!({"enum": ["red", "blue"], "type": "string"});
    for decorator in ["", "@skill\n"] {
        for (annotation, expected) in [
            ("Color", color.clone()),
            ("list[Color]", json!({"type": "array", "items": color})),
            ("Level", json!({"enum": [1, 2], "type": "integer"})),
            // Their values are not in the text.
            ("Auto", json!({"enum": ["ONE", "TWO"], "type": "string"})),
            (
                "Point",
                json!({"type": "object", "title": "Point", "description": "A place.", "additionalProperties": false,
                    "properties": {"x": {"type": "number", "title": "X"}, "y": {"type": "number", "title": "Y", "default": 0.0},
                        "tags": {"type": "array", "items": {"type": "string"}, "title": "Tags"},
                        "_seen": {"type": "boolean", "title": " Seen", "default": false}, "note": {"type": "string", "title": "Note"}},
                    "required": ["x", "note"]}),
            ),
            (
                "Row",
                json!({"type": "object", "title": "Row", "additionalProperties": false, "required": ["id"],
                    "properties": {"id": {"type": "integer", "title": "Id"}, "name": {"type": "string", "title": "Name"}}}),
            ),
            (
                "Full",
                json!({"type": "object", "title": "Full", "additionalProperties": false, "required": ["id", "when"],
                    "properties": {"id": {"type": "integer", "title": "Id"}, "name": {"type": "string", "title": "Name"},
                        "size": {"type": "integer", "title": "Size"}, "when": {"type": "string", "format": "date", "title": "When"}}}),
            ),
            (
                "Optional[Pair]",
                json!({"type": "object", "title": "Pair", "additionalProperties": false, "required": ["left"],
                    "properties": {"left": {"type": "integer", "title": "Left"},
                        "right": {"anyOf": [{"type": "integer"}, {"type": "string"}], "title": "Right", "default": 2}}}),
            ),
        ] {
            let found = schema(CLASSES, annotation, decorator);
            assert_eq!(found, (expected, Vec::new()), "{decorator}{annotation}");
        }
        let (place, told) = schema(CLASSES, "Place", decorator);
        assert_eq!(told, [""; 0]);
        let definition = &place["$defs"]["Place"];
        assert_eq!(place["$ref"], "#/$defs/Place");
        assert_eq!(
            definition["properties"]["color"],
            json!({"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}], "default": null})
        );
        assert_eq!(definition["required"], json!(["x", "note"]));
        assert_eq!(place["$defs"]["Color"]["enum"], json!(["red", "blue"]));
    }
    let (points, _) = schema(CLASSES, "dict[str, Place]", "");
    assert_eq!(points["additionalProperties"], json!({"$ref": "#/$defs/Place"}));
    let (either, _) = schema(CLASSES, "Place | Row", "");
    assert_eq!(either["anyOf"][0]["$ref"], "#/$defs/Place");
    assert_eq!(either["anyOf"][1]["title"], "Row");
    // The schema of a tool is that of a model alone: a record stays below its parameter.
    let report = generate(&format!("{CLASSES}def f(x: Row): pass\n"));
    assert_eq!(report.tools[0].to_value()["input_schema"]["required"], json!(["x"]));
}

#[test]
fn a_type_that_no_schema_says_is_reported_by_name() {
    let text = "is written as a string in the schema; the function gets the text that a model writes";
    let value = "is not in the schema; the function gets any value that a model writes";
    let foreign = "@dataclass\nclass Foreign(Base):\n  a: int\n@dataclass\nclass Holder:\n  it: Thing\n";
    for (annotation, decorator, expected) in [
        ("Thing", "", format!("the type of the parameter x, Thing, {text}")),
        (
            "Callable[[int], str]",
            "",
            format!("the type of the parameter x, Callable[?, str], {text}"),
        ),
        (
            "list[Thing | None]",
            "@skill\n",
            format!("the type of the parameter x, Thing, {text}"),
        ),
        (
            "timedelta",
            "",
            format!("the type of the parameter x, timedelta, {text}"),
        ),
        // A base of another file may have members.
        ("Foreign", "", format!("the type of the parameter x, Foreign, {text}")),
        (
            "Holder",
            "",
            format!("the type of Holder.it in the parameter x, Thing, {value}"),
        ),
        (
            "int | str",
            "@skill\n",
            format!("the type of the parameter x, int | str, {text}"),
        ),
        (
            "'int'",
            "@tool()\n",
            format!("the type of the parameter x, 'int', {text}"),
        ),
        (
            "Literal['a', 'b']",
            "@skill\n",
            format!("the type of the parameter x, Literal['a', 'b'], {text}"),
        ),
        (
            "list[set[str]]",
            "@skill\n",
            format!("the type of the parameter x, set[str], {text}"),
        ),
    ] {
        let (_, told) = schema(foreign, annotation, decorator);
        assert_eq!(told, [expected], "{decorator}{annotation}");
    }
    // Who states a schema needs no types.
    let (_, told) = schema(
        "",
        "Thing",
        "@skill(input_schema={'type': 'object', 'properties': {'x': {}}})\n",
    );
    assert_eq!(told, [""; 0]);
}
