//! The log of a process: JSON lines at its standard error.

use std::env::VarError;

use tracing::{Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::lines::{LineWriter, LineWriterGuard};

/// Variables with the filter of the log; the first one that is set counts.
const VARIABLES: [&str; 2] = ["KNACK_LOG", "RUST_LOG"];

/// Modules of libraries whose events hold what a request, an answer or an object holds, some of them at every level: rmcp logs MCP
/// requests and results, tungstenite the frames of runs, the Kubernetes client answers that it cannot read (Secrets among them). No
/// filter brings them into the log; what an operator needs to know of them has a line of this program's own.
const NEVER_LOGGED: [&str; 2] = ["rmcp", "tungstenite"];
/// A module of a library that is not logged for that reason either, unlike the modules below it.
const NEVER_LOGGED_ALONE: &str = "kube_client::client";
/// Begins of the names of events that the OpenTelemetry SDK has for each export that fails, without the collector's address or with
/// its answer. The exporter logs when that begins and ends.
const EACH_EXPORT: [&str; 3] = ["BatchSpanProcessor.ExportError", "Export.Failed", "HttpClient."];

/// Whether an event may be in the log, whatever its filter says.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let (target, name) = (metadata.target(), metadata.name());
    let is_of = |module: &str| {
        let below = target.strip_prefix(module);
        below.is_some_and(|below| below.is_empty() || below.starts_with("::"))
    };
    let is_export = target.starts_with("opentelemetry") && EACH_EXPORT.iter().any(|begin| name.starts_with(begin));
    target != NEVER_LOGGED_ALONE && !NEVER_LOGGED.into_iter().any(is_of) && !is_export
}

/// Writes the events that the filter lets through, as JSON lines.
fn subscriber(
    filter: EnvFilter,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(writer)
        .finish()
        .with(filter_fn(may_be_logged))
}

/// Begins the log. What is in it says `KNACK_LOG`, else `RUST_LOG`, else `default`, each a level or a filter such as
/// `info,knack=debug`; contents of requests are in the log at no level. One that is no filter is warned about by name, and has no
/// effect. What the result holds back is written when it is dropped.
///
/// Errors: the system gives no thread for it.
pub fn begin_log(default: &str) -> std::io::Result<LineWriterGuard> {
    let (filter, refused) = chosen(VARIABLES.map(|name| (name, std::env::var(name))), default);
    let (lines, guard) = LineWriter::start(std::io::stderr(), left_out)?;
    subscriber(filter, move || lines.clone()).init();
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
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_filter_brings_contents_of_requests_into_the_log() {
        for filter in [
            "trace",
            "trace,rmcp=trace,rmcp::service=trace,tungstenite=trace,kube_client::client=trace",
        ] {
            let kept = Kept::default();
            let writer = kept.clone();
            tracing::subscriber::with_default(subscriber(EnvFilter::new(filter), move || writer.clone()), || {
                tracing::debug!(target: "rmcp::service", "secret: received request");
                tracing::warn!(target: "rmcp::service", "secret: response error");
                tracing::error!(target: "rmcp", "secret");
                tracing::trace!(target: "tungstenite::protocol::frame", "secret: writing frame");
                tracing::warn!(target: "kube_client::client", "secret: an answer");
                tracing::error!(name: "BatchSpanProcessor.ExportError", target: "opentelemetry_sdk", "secret");
                tracing::warn!(name: "Export.Failed.NonRetryable", target: "opentelemetry-otlp", "secret");
                tracing::debug!(name: "HttpClient.StatusError", target: "opentelemetry-otlp", "secret");
                tracing::debug!(target: "kube_client::client::builder", "kept 1");
                tracing::warn!(name: "BatchSpanProcessor.SpanDroppingStarted", target: "opentelemetry_sdk", "kept 2");
                tracing::info!(target: "rmcp_like", "kept 3");
                tracing::trace!("kept 4");
            });
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("secret"), "{text}");
            for kept in ["kept 1", "kept 2", "kept 3", "kept 4"] {
                assert!(text.contains(kept), "{kept}: {text}");
            }
        }
    }

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
