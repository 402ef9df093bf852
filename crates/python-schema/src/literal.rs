//! Values that can be known without running anything.

use serde_json::{Map, Number, Value};
use tree_sitter::Node;

use super::source::{Module, parts, text_of};

/// Nesting of a value, constants followed included; deeper ones count as not static.
const MAX_DEPTH: usize = 32;

/// An expression, as far as it is known from the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Static {
    /// A JSON value.
    Value(Value),
    /// A name with its dots, such as `RiskLevel.SAFE` or `str`.
    Name(String),
    /// A call of a name.
    Call {
        /// The name called, with its dots.
        function: String,
        /// Arguments without a name.
        positional: Vec<Self>,
        /// Arguments with a name.
        keywords: Vec<(String, Self)>,
    },
    /// A list of which at least one element is no value.
    List(Vec<Self>),
    /// `...`
    Ellipsis,
    /// A value that is known only when the file is run.
    Unknown,
}

impl Static {
    /// The value, if it is one.
    pub(super) fn value(self) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Elements of a list, whether of values or of others.
    pub(super) fn elements(self) -> Option<Vec<Self>> {
        match self {
            Self::List(elements) => Some(elements),
            Self::Value(Value::Array(values)) => Some(values.into_iter().map(Self::Value).collect()),
            _ => None,
        }
    }

    /// The last part of a name: `SAFE` of `RiskLevel.SAFE`.
    pub(super) fn last_name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => name.rsplit('.').next(),
            _ => None,
        }
    }
}

/// Evaluates an expression; names of constants at the top of the file are followed.
pub(super) fn evaluate(node: Node<'_>, module: &Module<'_>) -> Static {
    evaluate_at(node, module, 0)
}

fn evaluate_at(node: Node<'_>, module: &Module<'_>, depth: usize) -> Static {
    let Some(left) = module.steps.get().checked_sub(1) else {
        return Static::Unknown;
    };
    module.steps.set(left);
    if depth > MAX_DEPTH || node.has_error() {
        return Static::Unknown;
    }
    let text = text_of(node, module.text);
    let deeper = |child: Node<'_>| evaluate_at(child, module, depth + 1);
    match node.kind() {
        "string" | "concatenated_string" => {
            string(node, module.text).map_or(Static::Unknown, |text| Static::Value(Value::String(text)))
        }
        "integer" | "float" => number(text).map_or(Static::Unknown, Static::Value),
        "true" => Static::Value(Value::Bool(true)),
        "false" => Static::Value(Value::Bool(false)),
        "none" => Static::Value(Value::Null),
        "ellipsis" => Static::Ellipsis,
        "parenthesized_expression" => parts(node).first().map_or(Static::Unknown, |inner| deeper(*inner)),
        "list" | "tuple" | "set" => list(parts(node).into_iter().map(deeper).collect()),
        "dictionary" => dictionary(node, &deeper),
        "unary_operator" => unary(node, module.text, &deeper),
        "binary_operator" => sum(node, module.text, &deeper),
        "identifier" => match module.constants.get(text) {
            Some(constant) => match deeper(*constant) {
                Static::Unknown => Static::Name(text.to_owned()),
                known => known,
            },
            None => Static::Name(text.to_owned()),
        },
        "attribute" => Static::Name(text.split_whitespace().collect()),
        "subscript" => Static::Name(text.to_owned()),
        "call" => call(node, module, depth),
        _ => Static::Unknown,
    }
}

fn list(elements: Vec<Static>) -> Static {
    if elements.iter().all(|element| matches!(element, Static::Value(_))) {
        Static::Value(elements.into_iter().filter_map(Static::value).collect())
    } else {
        Static::List(elements)
    }
}

fn dictionary(node: Node<'_>, evaluate: &dyn Fn(Node<'_>) -> Static) -> Static {
    let mut map = Map::new();
    for pair in parts(node) {
        let (Some(key), Some(value)) = (pair.child_by_field_name("key"), pair.child_by_field_name("value")) else {
            return Static::Unknown;
        };
        let key = match evaluate(key) {
            Static::Value(Value::String(key)) => key,
            Static::Value(Value::Number(key)) => key.to_string(),
            _ => return Static::Unknown,
        };
        match evaluate(value) {
            Static::Value(value) => map.insert(key, value),
            _ => return Static::Unknown,
        };
    }
    Static::Value(Value::Object(map))
}

fn unary(node: Node<'_>, text: &str, evaluate: &dyn Fn(Node<'_>) -> Static) -> Static {
    let sign = node
        .child_by_field_name("operator")
        .map_or("", |operator| text_of(operator, text));
    let Some(Static::Value(Value::Number(number))) = node.child_by_field_name("argument").map(evaluate) else {
        return Static::Unknown;
    };
    let negative = match (sign, number.as_i64(), number.as_f64()) {
        ("+", _, _) => Some(Value::Number(number)),
        ("-", Some(whole), _) => whole.checked_neg().map(Value::from),
        ("-", None, Some(float)) => Number::from_f64(-float).map(Value::Number),
        _ => None,
    };
    negative.map_or(Static::Unknown, Static::Value)
}

/// `"a" + "b"` and `[1] + [2]`, which long texts and lists are often written with.
fn sum(node: Node<'_>, text: &str, evaluate: &dyn Fn(Node<'_>) -> Static) -> Static {
    let operator = node
        .child_by_field_name("operator")
        .map_or("", |operator| text_of(operator, text));
    let side = |name: &str| node.child_by_field_name(name).map(evaluate);
    match (operator, side("left"), side("right")) {
        ("+", Some(Static::Value(Value::String(left))), Some(Static::Value(Value::String(right)))) => {
            Static::Value(Value::String(left + &right))
        }
        ("+", Some(Static::Value(Value::Array(mut left))), Some(Static::Value(Value::Array(right)))) => {
            left.extend(right);
            Static::Value(Value::Array(left))
        }
        _ => Static::Unknown,
    }
}

fn call(node: Node<'_>, module: &Module<'_>, depth: usize) -> Static {
    let (Some(function), Some(arguments)) = (
        node.child_by_field_name("function"),
        node.child_by_field_name("arguments"),
    ) else {
        return Static::Unknown;
    };
    if arguments.kind() != "argument_list" || !matches!(function.kind(), "identifier" | "attribute") {
        return Static::Unknown;
    }
    let (mut positional, mut keywords) = (Vec::new(), Vec::new());
    for argument in parts(arguments) {
        if argument.kind() != "keyword_argument" {
            positional.push(evaluate_at(argument, module, depth + 1));
        } else if let (Some(name), Some(value)) = (
            argument.child_by_field_name("name"),
            argument.child_by_field_name("value"),
        ) {
            let name = text_of(name, module.text).to_owned();
            keywords.push((name, evaluate_at(value, module, depth + 1)));
        }
    }
    Static::Call {
        function: text_of(function, module.text).split_whitespace().collect(),
        positional,
        keywords,
    }
}

/// An `int` or `float` literal; `None` for complex numbers and those beyond JSON's usual range.
fn number(text: &str) -> Option<Value> {
    let text = text.replace('_', "").to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return i64::from_str_radix(digits, radix).ok().map(Value::from);
        }
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<u64>().ok().map(Value::from);
    }
    let float: f64 = text.parse().ok()?;
    Number::from_f64(float).map(Value::Number)
}

/// The text of a string literal or of several side by side; `None` for bytes and for f-strings with a field.
pub(super) fn string(node: Node<'_>, text: &str) -> Option<String> {
    if node.kind() == "concatenated_string" {
        return parts(node).into_iter().map(|part| string(part, text)).collect();
    }
    let has_field = parts(node).iter().any(|part| part.kind() == "interpolation");
    if node.kind() != "string" || has_field || node.has_error() {
        return None;
    }
    unquote(text_of(node, text))
}

/// Decodes one literal with its prefix and quotes.
pub(super) fn unquote(literal: &str) -> Option<String> {
    let start = literal.find(['"', '\''])?;
    let prefix = literal[..start].to_ascii_lowercase();
    if prefix.contains('b') {
        return None;
    }
    let quoted = &literal[start..];
    let quote = if quoted.starts_with("\"\"\"") || quoted.starts_with("'''") {
        3
    } else {
        1
    };
    let inner = quoted.get(quote..quoted.len().checked_sub(quote)?)?;
    let inner = inner.replace("\r\n", "\n");
    if prefix.contains('f') {
        let plain = inner.replace("{{", "{").replace("}}", "}");
        return Some(if prefix.contains('r') { plain } else { unescape(&plain) });
    }
    Some(if prefix.contains('r') { inner } else { unescape(&inner) })
}

/// Python's escapes; an unknown one stays as written.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut letters = rest.chars();
        letters.next();
        let Some(letter) = letters.next() else { break };
        let simple = match letter {
            'n' => Some("\n"),
            't' => Some("\t"),
            'r' => Some("\r"),
            'a' => Some("\u{7}"),
            'b' => Some("\u{8}"),
            'f' => Some("\u{c}"),
            'v' => Some("\u{b}"),
            '\\' => Some("\\"),
            '\'' => Some("'"),
            '"' => Some("\""),
            '\n' => Some(""),
            _ => None,
        };
        if let Some(plain) = simple {
            out.push_str(plain);
            rest = &rest[1 + letter.len_utf8()..];
            continue;
        }
        let (character, used) = match letter {
            'x' => coded(rest, 2, 2, 16),
            'u' => coded(rest, 2, 4, 16),
            'U' => coded(rest, 2, 8, 16),
            '0'..='7' => {
                let digits = rest[1..]
                    .bytes()
                    .take(3)
                    .take_while(|b| (b'0'..=b'7').contains(b))
                    .count();
                coded(rest, 1, digits, 8)
            }
            _ => (None, 0),
        };
        if let Some(character) = character {
            out.push(character);
            rest = &rest[used..];
        } else {
            out.push('\\');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

/// Reads `count` digits from byte `from` on: the character and the bytes used.
fn coded(text: &str, from: usize, count: usize, radix: u32) -> (Option<char>, usize) {
    let end = from + count;
    let character = text
        .get(from..end)
        .and_then(|digits| u32::from_str_radix(digits, radix).ok())
        .and_then(char::from_u32);
    (character, end)
}
