//! The tracer that the environment asks for.

#[cfg(feature = "otel")]
use std::sync::Arc;

use knack_trust::Roots;

#[cfg(feature = "otel")]
use super::genai::Conventions;
#[cfg(feature = "otel")]
use super::otlp::{OtlpSink, is_export_configured};
use super::tracer::Tracer;

impl Tracer {
    /// As the standard's environment variables say; off without a collector's address. Must be called inside a tokio
    /// runtime, which carries the exports.
    ///
    /// `service` is the service's name where the environment gives none; `roots` are the authorities that the collector's
    /// certificate is checked against. Errors: a variable that cannot be followed.
    #[cfg(feature = "otel")]
    pub fn from_env(service: &'static str, roots: &Roots) -> Result<Self, String> {
        let variable = |name: &str| std::env::var(name).ok();
        if !is_export_configured(&variable)? {
            return Ok(Self::off());
        }
        let sink = OtlpSink::from_env(service, roots)?;
        let conventions = Conventions::of_opt_in(variable("OTEL_SEMCONV_STABILITY_OPT_IN").as_deref());
        Ok(Self::to(Arc::new(sink), conventions))
    }

    /// Off: this program was built without an exporter, and says so if one is is_export_configured.
    #[cfg(not(feature = "otel"))]
    pub fn from_env(_: &'static str, _: &Roots) -> Result<Self, String> {
        if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some()
            || std::env::var_os("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").is_some()
        {
            tracing::warn!("OTEL_EXPORTER_OTLP_ENDPOINT is ignored: this program was built without the feature otel");
        }
        Ok(Self::off())
    }
}
