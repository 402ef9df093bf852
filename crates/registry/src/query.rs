//! Queries of addresses.

/// The parameters of a query in order. Ids, numbers and words need no decoding; what does is compared as it came.
pub(crate) fn parameters(query: Option<&str>) -> impl Iterator<Item = (String, String)> {
    let pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned()))
}
