//! The cause of an error, for the log.

use std::error::Error;

/// The text of the innermost cause of an error, or of the error itself: what a person needs. An error of a request must be without its
/// address, which may hold a credential.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
