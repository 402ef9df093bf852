//! Queries of addresses.

use std::ops::RangeInclusive;

use crate::answer::Refusal;

/// The parameters of a query in order. Ids, numbers and words need no decoding; what does is compared as it came.
pub(crate) fn parameters(query: Option<&str>) -> impl Iterator<Item = (String, String)> {
    let pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned()))
}

/// A number within bounds.
pub(crate) fn number(value: &str, bounds: &RangeInclusive<usize>) -> Option<usize> {
    value.parse().ok().filter(|number| bounds.contains(number))
}

/// The `limit` of a page.
pub(crate) fn page_limit(value: &str, bounds: &RangeInclusive<usize>) -> Result<usize, Refusal> {
    number(value, bounds).ok_or_else(|| {
        let text = format!("limit: a number from {} to {}", bounds.start(), bounds.end());
        Refusal::invalid("limit", text)
    })
}
