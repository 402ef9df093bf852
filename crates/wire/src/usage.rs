//! Usage objects: summed over rounds, every numeric leaf by key (docs/design/wire-formats.md#usage).

use crate::json::{self, Span, ValueKind};

/// Sums over finished rounds, and the round that is running.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageSum {
    done: Option<Vec<u8>>,
    current: Option<Vec<u8>>,
}

impl UsageSum {
    /// The totals of the running round, as far as known; a later report replaces leaves of an earlier one.
    pub(crate) fn report(&mut self, usage: &[u8]) {
        self.current = Some(match &self.current {
            Some(old) => combine(old, usage, &|_, new| new.to_vec()),
            None => usage.to_vec(),
        });
    }

    /// The running round is over.
    pub(crate) fn close_round(&mut self) {
        self.done = self.total();
        self.current = None;
    }

    /// True if nothing but one report would be in the total.
    pub(crate) const fn single(&self) -> bool {
        self.done.is_none()
    }

    /// Finished rounds and the running one together.
    pub(crate) fn total(&self) -> Option<Vec<u8>> {
        match (&self.done, &self.current) {
            (Some(done), Some(current)) => Some(combine(done, current, &add)),
            (Some(one), None) | (None, Some(one)) => Some(one.clone()),
            (None, None) => None,
        }
    }
}

/// How two numbers become one.
type Leaf<'l> = &'l dyn Fn(&[u8], &[u8]) -> Vec<u8>;

/// Adds two numbers as written; the second wins if one is not a number that can be added.
fn add(old: &[u8], new: &[u8]) -> Vec<u8> {
    let text = |raw| std::str::from_utf8(raw).unwrap_or_default();
    if let (Ok(a), Ok(b)) = (text(old).parse::<i128>(), text(new).parse::<i128>()) {
        return a.saturating_add(b).to_string().into_bytes();
    }
    match (text(old).parse::<f64>(), text(new).parse::<f64>()) {
        (Ok(a), Ok(b)) if (a + b).is_finite() => (a + b).to_string().into_bytes(),
        _ => new.to_vec(),
    }
}

/// Joins two values: objects by key, lists of objects by `modality`, numbers by `leaf`; else the newer one, unless it
/// is null.
fn combine(old: &[u8], new: &[u8], leaf: Leaf<'_>) -> Vec<u8> {
    let (old_span, new_span) = (Span::new(0, old.len()), Span::new(0, new.len()));
    match (json::kind(old, old_span), json::kind(new, new_span)) {
        (Some(ValueKind::Object), Some(ValueKind::Object)) => objects(old, new, leaf),
        (Some(ValueKind::Array), Some(ValueKind::Array)) => modalities(old, new, leaf).unwrap_or_else(|| new.to_vec()),
        (Some(ValueKind::Number), Some(ValueKind::Number)) => leaf(old, new),
        (_, Some(ValueKind::Null)) => old.to_vec(),
        _ => new.to_vec(),
    }
}

fn objects(old: &[u8], new: &[u8], leaf: Leaf<'_>) -> Vec<u8> {
    let (Ok(old_list), Ok(new_list)) = (
        json::members(old, Span::new(0, old.len())),
        json::members(new, Span::new(0, new.len())),
    ) else {
        return new.to_vec();
    };
    let mut out = vec![b'{'];
    let mut push = |key: &[u8], value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value);
    };
    for a in &old_list {
        let key = a.key.of(old);
        match new_list.iter().find(|b| b.key.of(new) == key) {
            Some(b) => push(key, &combine(a.value.of(old), b.value.of(new), leaf)),
            None => push(key, a.value.of(old)),
        }
    }
    for b in &new_list {
        let key = b.key.of(new);
        if !old_list.iter().any(|a| a.key.of(old) == key) {
            push(key, b.value.of(new));
        }
    }
    out.push(b'}');
    out
}

fn modalities(old: &[u8], new: &[u8], leaf: Leaf<'_>) -> Option<Vec<u8>> {
    let named = |src: &[u8]| {
        let elements = json::elements(src, Span::new(0, src.len())).ok()?;
        let one = |span: &Span| {
            Some((
                json::get_text(src, *span, "modality")?.into_owned(),
                span.of(src).to_vec(),
            ))
        };
        elements.iter().map(one).collect::<Option<Vec<(String, Vec<u8>)>>>()
    };
    let (mut joined, new) = (named(old)?, named(new)?);
    for (name, value) in new {
        match joined.iter_mut().find(|(own, _)| *own == name) {
            Some((_, old)) => *old = combine(old, &value, leaf),
            None => joined.push((name, value)),
        }
    }
    let values: Vec<&[u8]> = joined.iter().map(|(_, value)| value.as_slice()).collect();
    Some([b"[", values.join(&b","[..]).as_slice(), b"]"].concat())
}
