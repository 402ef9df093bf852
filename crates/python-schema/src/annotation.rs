//! Type annotations as values, read from their text.

use super::literal::unquote;

/// Nesting of an annotation; a deeper one counts as unknown.
const MAX_DEPTH: usize = 24;

/// A type annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Annotation {
    /// `None`
    None,
    /// A name without its module: `str`, `Any`, `SkillContext`.
    Name(String),
    /// `list[int]`, `Dict[str, int]`: a name without its module, and its parameters.
    Generic(String, Vec<Self>),
    /// Alternatives, flat and without repetition, at least two.
    Union(Vec<Self>),
    /// `Literal[...]`: the texts of its values.
    Literal(Vec<String>),
    /// `Annotated[X, ...]`: the type, and the texts of what is said about it, at least one.
    Annotated(Box<Self>, Vec<String>),
    /// A type in quotes that is no class: Python reads it as the type, Tukuy as a text.
    Quoted(Box<Self>),
    /// `...`
    Ellipsis,
    /// No type, or one that is nested too deeply.
    Unknown,
}

impl Annotation {
    /// Reads an annotation; it never fails, what cannot be read is `Unknown`.
    pub(super) fn parse(text: &str) -> Self {
        Self::parse_at(text, 0)
    }

    fn parse_at(text: &str, depth: usize) -> Self {
        if depth > MAX_DEPTH {
            return Self::Unknown;
        }
        let text = text.trim();
        let alternatives = split(text, '|');
        if alternatives.len() > 1 {
            return Self::union(alternatives.into_iter().map(|part| Self::parse_at(part, depth + 1)));
        }
        match text {
            "" => Self::Unknown,
            "None" | "NoneType" => Self::None,
            "..." => Self::Ellipsis,
            _ if text.ends_with(['"', '\'']) => {
                unquote(text).map_or(Self::Unknown, |inner| Self::parse_at(&inner, depth + 1).of_class())
            }
            _ if text.starts_with('(') && text.ends_with(')') => Self::parse_at(&text[1..text.len() - 1], depth + 1),
            _ => Self::parse_name(text, depth),
        }
    }

    fn parse_name(text: &str, depth: usize) -> Self {
        let Some(open) = text.find('[') else {
            return last_name(text).map_or(Self::Unknown, Self::Name);
        };
        let (Some(name), Some(inner)) = (last_name(&text[..open]), text[open + 1..].strip_suffix(']')) else {
            return Self::Unknown;
        };
        let mut arguments = split(inner, ',').into_iter().filter(|part| !part.trim().is_empty());
        if name == "Literal" {
            return Self::Literal(arguments.map(|part| part.trim().to_owned()).collect());
        }
        if name == "Annotated" {
            let kind = arguments.next();
            let kind = kind.map_or(Self::Unknown, |part| Self::parse_at(part, depth + 1));
            let said: Vec<String> = arguments.map(|part| part.trim().to_owned()).collect();
            return if said.is_empty() {
                kind
            } else {
                Self::Annotated(Box::new(kind), said)
            };
        }
        let mut parameters: Vec<Self> = arguments.map(|part| Self::parse_at(part, depth + 1)).collect();
        match name.as_str() {
            "Optional" => Self::union(parameters.into_iter().chain([Self::None])),
            "Union" => Self::union(parameters.into_iter()),
            "Required" | "NotRequired" | "ReadOnly" | "Final" | "InitVar" if !parameters.is_empty() => {
                parameters.swap_remove(0)
            }
            _ => Self::Generic(name, parameters),
        }
    }

    /// Flattens alternatives and drops repetitions, as Python does when it builds the union.
    fn union(alternatives: impl Iterator<Item = Self>) -> Self {
        let mut flat: Vec<Self> = Vec::new();
        for alternative in alternatives {
            let inner = match alternative {
                Self::Union(inner) => inner,
                other => vec![other],
            };
            for part in inner {
                if !flat.contains(&part) {
                    flat.push(part);
                }
            }
        }
        match (flat.len(), flat.pop()) {
            (_, None) => Self::Unknown,
            (1, Some(only)) => only,
            (_, Some(last)) => {
                flat.push(last);
                Self::Union(flat)
            }
        }
    }

    /// A quoted annotation: the name of a class that may be further below, also an optional one, is looked up as if it had no
    /// quotes. Tukuy takes what is in quotes for a string, whatever it is.
    fn of_class(self) -> Self {
        match self.optional().unwrap_or(&self).bare() {
            Self::Name(name) if !is_builtin(name) => self,
            _ => Self::Quoted(Box::new(self)),
        }
    }

    /// The only alternative besides `None`, if there is exactly one: `X` of `Optional[X]`.
    pub(super) fn optional(&self) -> Option<&Self> {
        let Self::Union(alternatives) = self.bare() else {
            return None;
        };
        let mut real = alternatives.iter().filter(|part| **part != Self::None);
        match (real.next(), real.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// Whether this is a name or an optional name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        matches!(self.optional().unwrap_or(self).bare(), Self::Name(own) if own == name)
    }

    /// The name of the outermost generic type in a text: `NotRequired` of `typing.NotRequired[int]`.
    pub(super) fn wrapper(text: &str) -> Option<String> {
        last_name(text.split_once('[')?.0)
    }

    /// The type without what is said about it.
    pub(super) fn bare(&self) -> &Self {
        match self {
            Self::Annotated(kind, _) => kind.bare(),
            other => other,
        }
    }
}

/// Whether a name is a built-in type of Python, which needs no quotes.
fn is_builtin(name: &str) -> bool {
    matches!(
        name,
        "str" | "int" | "float" | "bool" | "list" | "dict" | "bytes" | "List" | "Dict"
    )
}

/// `str` of `typing.str`, if every part is an identifier.
fn last_name(text: &str) -> Option<String> {
    let legal = |part: &str| {
        let mut letters = part.chars();
        letters
            .next()
            .is_some_and(|first| first == '_' || first.is_alphabetic())
            && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
    };
    let parts: Vec<&str> = text.split('.').map(str::trim).collect();
    if parts.iter().all(|part| legal(part)) {
        parts.last().map(|last| (*last).to_owned())
    } else {
        None
    }
}

/// Splits at a separator that is outside of brackets and quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let mut quote: Option<char> = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '(' | '{') => depth += 1,
            (None, ']' | ')' | '}') => depth = depth.saturating_sub(1),
            (None, _) if letter == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + letter.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

impl std::fmt::Display for Annotation {
    /// As Python writes it, without modules and without what is said about a type.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |parts: &[Self], separator: &str| {
            let parts: Vec<String> = parts.iter().map(Self::to_string).collect();
            parts.join(separator)
        };
        match self {
            Self::None => formatter.write_str("None"),
            Self::Name(name) => formatter.write_str(name),
            Self::Generic(name, parameters) => write!(formatter, "{name}[{}]", list(parameters, ", ")),
            Self::Union(alternatives) => formatter.write_str(&list(alternatives, " | ")),
            Self::Literal(values) => write!(formatter, "Literal[{}]", values.join(", ")),
            Self::Annotated(kind, _) => kind.fmt(formatter),
            Self::Quoted(kind) => write!(formatter, "'{kind}'"),
            Self::Ellipsis => formatter.write_str("..."),
            Self::Unknown => formatter.write_str("?"),
        }
    }
}
