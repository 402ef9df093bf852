//! Medians and spreads, shared by the benches.

use super::report::Measured;

/// Median and spread (half the distance between the quartiles, over the median) of a sample.
pub(crate) fn median_and_spread(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |percent| of_sorted(&values, percent);
    let median = at(50);
    (
        median,
        if median == 0.0 {
            0.0
        } else {
            (at(75) - at(25)) / 2.0 / median.abs()
        },
    )
}

/// The percentile of values in order, by nearest rank: the smallest value that `percent` of the sample do not exceed.
pub(crate) fn of_sorted(values: &[f64], percent: usize) -> f64 {
    values[(values.len() * percent).div_ceil(100) - 1]
}

/// Median and spread as a row's value.
pub(crate) fn measured(values: Vec<f64>) -> Measured {
    let (value, spread) = median_and_spread(values);
    Measured { value, spread }
}
