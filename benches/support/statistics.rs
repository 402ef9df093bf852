//! Medians and spreads, shared by the benches.

use super::report::Measured;

/// Median and spread (half the distance between the quartiles, over the median) of a sample.
pub(crate) fn median_and_spread(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    let median = at(0.5);
    (
        median,
        if median == 0.0 {
            0.0
        } else {
            (at(0.75) - at(0.25)) / 2.0 / median.abs()
        },
    )
}

/// The same as a row's value.
pub(crate) fn measured(values: Vec<f64>) -> Measured {
    let (value, spread) = median_and_spread(values);
    Measured { value, spread }
}
