//! Versions of packages (PEP 440): epoch, release, pre-, post- and development releases, local versions.

/// A version that was read. The order of the fields is that in which they are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    epoch: u64,
    /// Without zeros at its end: `1.0` and `1` are equal.
    release: Vec<u64>,
    /// Stage and number. A development release of no other stage is before all of them, and without any a version is after them.
    pre: (Stage, u64),
    post: Option<u64>,
    /// Development releases are before the others.
    dev: (IsFinal, u64),
    /// A number is after a text.
    local: Option<Vec<(bool, u64, String)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Development,
    Alpha,
    Beta,
    Candidate,
    Final,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum IsFinal {
    No,
    Yes,
}

/// Words of stages, longer ones before those that they begin with.
const STAGES: [(&str, Stage); 8] = [
    ("alpha", Stage::Alpha),
    ("a", Stage::Alpha),
    ("beta", Stage::Beta),
    ("b", Stage::Beta),
    ("preview", Stage::Candidate),
    ("pre", Stage::Candidate),
    ("rc", Stage::Candidate),
    ("c", Stage::Candidate),
];
const POST: [(&str, ()); 3] = [("post", ()), ("rev", ()), ("r", ())];
const DEV: [(&str, ()); 1] = [("dev", ())];

impl Version {
    /// Reads a version; `None`: it is none, or its numbers are larger than any in use.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.strip_prefix('v').unwrap_or(&text);
        let (text, local) = match text.split_once('+') {
            Some((text, local)) => (text, Some(local_parts(local)?)),
            None => (text, None),
        };
        let (epoch, text) = match text.split_once('!') {
            Some((epoch, text)) => (number(epoch)?, text),
            None => (0, text),
        };
        let (first, mut rest) = digits(text)?;
        let mut release = vec![first];
        while let Some((next, after)) = rest.strip_prefix('.').and_then(digits) {
            release.push(next);
            rest = after;
        }
        let (mut pre, mut post, mut dev) = (None, None, None);
        if let Some((stage, number, after)) = tagged(rest, &STAGES) {
            (pre, rest) = (Some((stage, number)), after);
        }
        // `1.0-1` is a post-release too.
        if let Some((number, after)) = rest.strip_prefix('-').and_then(digits) {
            (post, rest) = (Some(number), after);
        } else if let Some(((), number, after)) = tagged(rest, &POST) {
            (post, rest) = (Some(number), after);
        }
        if let Some(((), number, after)) = tagged(rest, &DEV) {
            (dev, rest) = (Some(number), after);
        }
        if !rest.is_empty() {
            return None;
        }
        while release.len() > 1 && release.last() == Some(&0) {
            release.pop();
        }
        let without_stage = if dev.is_some() && post.is_none() {
            Stage::Development
        } else {
            Stage::Final
        };
        Some(Self {
            epoch,
            release,
            pre: pre.unwrap_or((without_stage, 0)),
            post,
            dev: dev.map_or((IsFinal::Yes, 0), |number| (IsFinal::No, number)),
            local,
        })
    }

    /// The version without its local part.
    pub(crate) fn public(&self) -> Self {
        Self {
            local: None,
            ..self.clone()
        }
    }

    /// Whether it is before a release.
    pub(crate) fn is_prerelease(&self) -> bool {
        self.pre.0 != Stage::Final || self.dev.0 == IsFinal::No
    }

    /// Whether it is of the release of another one.
    pub(crate) fn has_base_of(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.release == other.release
    }

    /// Whether it has a local part.
    pub(crate) const fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Whether it is after a release.
    pub(crate) const fn is_postrelease(&self) -> bool {
        self.post.is_some()
    }

    /// Whether the release begins with these numbers.
    pub(crate) fn begins_with(&self, epoch: u64, numbers: &[u64]) -> bool {
        let own = self.release.iter().copied().chain(std::iter::repeat(0));
        self.epoch == epoch && own.zip(numbers).all(|(own, wanted)| own == *wanted)
    }
}

/// Epoch and numbers of a version as written, with zeros at the end.
pub(crate) fn release_of(text: &str) -> Option<(u64, Vec<u64>)> {
    let version = Version::parse(text)?;
    let text = text.trim().trim_start_matches(['v', 'V']);
    let text = text.split_once('!').map_or(text, |(_, text)| text);
    let mut numbers = Vec::new();
    let mut rest = Some(text);
    while let Some((next, after)) = rest.and_then(digits) {
        numbers.push(next);
        rest = after.strip_prefix('.');
    }
    Some((version.epoch, numbers))
}

fn local_parts(text: &str) -> Option<Vec<(bool, u64, String)>> {
    let part = |part: &str| {
        let is_text = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_text.then(|| match number(part) {
            Some(number) => (true, number, String::new()),
            None => (false, 0, part.to_owned()),
        })
    };
    text.split(['.', '-', '_']).map(part).collect()
}

/// A word of a list with its number, which is 0 if it is left out, and what follows.
fn tagged<'a, T: Copy>(text: &'a str, words: &[(&str, T)]) -> Option<(T, u64, &'a str)> {
    let separators = ['-', '_', '.'];
    let begun = text.strip_prefix(separators).unwrap_or(text);
    let (tag, rest) = words
        .iter()
        .find_map(|(word, tag)| Some((*tag, begun.strip_prefix(word)?)))?;
    let numbered = digits(rest.strip_prefix(separators).unwrap_or(rest));
    let (number, rest) = numbered.unwrap_or((0, rest));
    Some((tag, number, rest))
}

/// The number that a text begins with, and what follows.
fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(end);
    Some((number(digits)?, rest))
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order that PEP 440 gives as its example, with more of each kind.
    #[test]
    fn versions_are_in_order() {
        let ordered = [
            "1.dev0",
            "1.0.dev456",
            "1.0a1",
            "1.0a2.dev456",
            "1.0a12.dev456",
            "1.0a12",
            "1.0b1.dev456",
            "1.0b2",
            "1.0b2.post345.dev456",
            "1.0b2.post345",
            "1.0rc1.dev456",
            "1.0rc1",
            "1.0",
            "1.0+abc.5",
            "1.0+abc.7",
            "1.0+5",
            "1.0.post456.dev34",
            "1.0.post456",
            "1.0.15",
            "1.1.dev1",
            "1!0.1",
        ];
        let parsed: Vec<Version> = ordered.iter().map(|text| Version::parse(text).unwrap()).collect();
        for (pair, texts) in parsed.windows(2).zip(ordered.windows(2)) {
            assert!(pair[0] < pair[1], "{texts:?}");
        }
    }

    #[test]
    fn one_version_has_many_spellings() {
        for (one, other) in [
            ("1.0", "1"),
            ("v1.0", "1.0.0"),
            ("1.0alpha1", "1.0a1"),
            ("1.0-RC-1", "1.0rc1"),
            ("1.0c1", "1.0rc1"),
            ("1.0preview", "1.0rc0"),
            ("1.0-1", "1.0.post1"),
            ("1.0_r_1", "1.0.post1"),
            ("1.0.DEV", "1.0dev0"),
            ("1.0+a-b", "1.0+A.b"),
            ("01.02", "1.2"),
        ] {
            assert_eq!(
                Version::parse(one).unwrap(),
                Version::parse(other).unwrap(),
                "{one} {other}"
            );
        }
        for text in [
            "",
            "a",
            "1.x",
            "1.0rc1x",
            "1..0",
            "1.0+",
            "1.0+é",
            "!1",
            "2004d1x",
            "99999999999999999999",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
