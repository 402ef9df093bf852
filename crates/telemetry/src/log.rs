//! The log of a process: JSON lines at its standard error.

use std::env::VarError;

use tracing_subscriber::EnvFilter;

use crate::lines::{LineWriter, LineWriterGuard};

/// Variables with the filter of the log; the first one that is set counts.
const VARIABLES: [&str; 2] = ["KNACK_LOG", "RUST_LOG"];

/// Begins the log. What is in it says `KNACK_LOG`, else `RUST_LOG`, else `default`, each a level or a filter such as
/// `info,knack=debug`. One that is no filter is warned about by name, and has no effect. What the result holds back is written when
/// it is dropped.
///
/// Errors: the system gives no thread for it.
pub fn begin_log(default: &str) -> std::io::Result<LineWriterGuard> {
    let (filter, refused) = chosen(VARIABLES.map(|name| (name, std::env::var(name))), default);
    let (lines, guard) = LineWriter::start(std::io::stderr(), left_out)?;
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(move || lines.clone())
        .init();
    for text in refused {
        tracing::warn!("{text}");
    }
    Ok(guard)
}

/// The line of the log in the place of others.
fn left_out(count: u64) -> String {
    format!(
        r#"{{"level":"WARN","fields":{{"message":"lines of the log were left out, since it is not read as fast as it is written","count":{count}}},"target":"knack_telemetry::log"}}"#
    )
}

/// The filter, and what is wrong with variables that are none.
fn chosen(variables: [(&str, Result<String, VarError>); 2], default: &str) -> (EnvFilter, Vec<String>) {
    let mut refused = Vec::new();
    for (name, value) in variables {
        let found = match value {
            Ok(text) if text.is_empty() => continue,
            Ok(text) => EnvFilter::try_new(&text).map_err(|error| format!("{text:?}: {error}")),
            Err(VarError::NotPresent) => continue,
            Err(error @ VarError::NotUnicode(_)) => Err(error.to_string()),
        };
        match found {
            Ok(filter) => return (filter, refused),
            Err(error) => refused.push(format!(
                "{name}: invalid log filter, ignored: {error}; write a level (trace, debug, info, warn, error) or \
                 a filter such as info,knack=debug"
            )),
        }
    }
    (EnvFilter::new(default), refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_counts_and_one_that_is_no_filter_is_named() {
        let unset = || Err(VarError::NotPresent);
        let set = |text: &str| Ok(text.to_owned());
        for (knack, rust, filter, named) in [
            (unset(), unset(), "warn", &[][..]),
            (set(""), unset(), "warn", &[]),
            (set("info,knack=debug"), set("error"), "knack=debug,info", &[]),
            (unset(), set("error"), "error", &[]),
            (set("a=loud"), set("error"), "error", &["KNACK_LOG"]),
            (set("a=loud"), set("b=louder"), "warn", &["KNACK_LOG", "RUST_LOG"]),
        ] {
            let (found, refused) = chosen([("KNACK_LOG", knack), ("RUST_LOG", rust)], "warn");
            assert_eq!(found.to_string(), filter);
            let names: Vec<_> = refused.iter().map(|text| text.split(':').next().unwrap()).collect();
            assert_eq!(names, named);
        }
    }
}
