//! Queries of addresses.

use std::ops::RangeInclusive;

use percent_encoding::percent_decode_str;

use crate::answer::Refusal;

/// The parameters of a query in order, decoded. A word without `=` is none.
pub fn parameters(query: Option<&str>) -> impl Iterator<Item = (String, String)> {
    let pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value)))
}

fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// A number within bounds.
pub(crate) fn number(value: &str, bounds: &RangeInclusive<usize>) -> Option<usize> {
    value.parse().ok().filter(|number| bounds.contains(number))
}

/// The parameter of this name, a number from 1 on.
pub(crate) fn from_one(name: &str, value: &str, most: usize) -> Result<usize, Refusal> {
    number(value, &(1..=most)).ok_or_else(|| Refusal::invalid(name, format!("must be a number from 1 to {most}")))
}

/// The `limit` of a page.
pub(crate) fn page_limit(value: &str, bounds: &RangeInclusive<usize>) -> Result<usize, Refusal> {
    number(value, bounds).ok_or_else(|| {
        let text = format!("limit: must be a number from {} to {}", bounds.start(), bounds.end());
        Refusal::invalid("limit", text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let pairs: Vec<(String, String)> = parameters(Some(
            "apiKeyId=team%2Fapp%2311&q=Two+w%C3%B6rds&a%5B%5D=%2B&a[]=x%20y&flag&b=",
        ))
        .collect();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
        let expected = [
            ("apiKeyId", "team/app#11"),
            ("q", "Two wörds"),
            ("a[]", "+"),
            ("a[]", "x y"),
            ("b", ""),
        ];
        assert_eq!(pairs, expected);
    }
}
