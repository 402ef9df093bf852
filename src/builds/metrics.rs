//! Readiness and metrics of the process.

use std::sync::{Mutex, PoisonError};

use knack_packages::{EnvironmentStatuses, State};
use knack_serving::probes::Probes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds of a build: a few small wheels take one or two, and a Job ends after at most 15 minutes.
const SECONDS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// The state behind the probes.
#[derive(Debug)]
pub(super) struct BuildMetrics {
    is_ready: Mutex<bool>,
    registry: Registry,
    environments: Family<StateLabel, Gauge>,
    builds: Family<ResultLabel, Counter>,
    seconds: Histogram,
}

impl Default for BuildMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("knack_packages");
        let metrics = Self {
            is_ready: Mutex::default(),
            environments: Family::default(),
            builds: Family::default(),
            seconds: Histogram::new(SECONDS),
            registry: Registry::default(),
        };
        registry.register(
            "environments",
            "Environments that are known, by state",
            metrics.environments.clone(),
        );
        registry.register(
            "builds",
            "Builder Jobs that ended or could not be started, by result",
            metrics.builds.clone(),
        );
        registry.register(
            "build_seconds",
            "Time of a builder Job from its start to its end",
            metrics.seconds.clone(),
        );
        for state in State::ALL {
            metrics
                .environments
                .get_or_create(&StateLabel { state: state.as_str() })
                .set(0);
            // A counter that first appears with its first count shows no increase to Prometheus, and KnackPackagesFail asks for one.
            drop(metrics.builds.get_or_create(&ResultLabel { result: state.as_str() }));
        }
        Self { registry, ..metrics }
    }
}

impl BuildMetrics {
    /// Sets the counts of environments by state.
    pub(super) fn know(&self, statuses: &EnvironmentStatuses) {
        for state in State::ALL {
            let count = statuses.0.values().filter(|status| status.state == state).count();
            let gauge = self.environments.get_or_create(&StateLabel { state: state.as_str() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        *self.is_ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Counts the end of a build, or that it could not be started, and its duration in seconds if that is known.
    pub(super) fn built(&self, result: State, seconds: Option<f64>) {
        self.builds
            .get_or_create(&ResultLabel {
                result: result.as_str(),
            })
            .inc();
        if let Some(seconds) = seconds {
            self.seconds.observe(seconds);
        }
    }
}

impl Probes for BuildMetrics {
    fn ready(&self) -> Result<String, String> {
        let is_ready = *self.is_ready.lock().unwrap_or_else(PoisonError::into_inner);
        is_ready
            .then(String::new)
            .ok_or_else(|| "the statuses are not read yet".to_owned())
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        // Writing to memory does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use knack_packages::EnvironmentStatus;

    use super::*;

    #[test]
    fn alerts_and_dashboard_know_the_results() {
        for word in crate::fixture::monitored_words("knack_packages_builds_total", "result") {
            assert!(State::ALL.iter().any(|state| state.as_str() == word), "{word}");
        }
    }

    #[test]
    fn the_metrics_are_of_every_state_and_of_builds_by_result() {
        let metrics = BuildMetrics::default();
        assert!(metrics.ready().is_err());
        let status = EnvironmentStatus {
            state: State::NoWheel,
            message: String::new(),
            environment: None,
            is_partial: false,
            since: 0,
            used: 0,
        };
        metrics.know(&EnvironmentStatuses([("k".into(), status)].into()));
        metrics.built(State::NoWheel, Some(3.0));
        metrics.built(State::Ready, None);
        assert!(metrics.ready().is_ok());
        let text = metrics.metrics();
        for line in [
            "knack_packages_environments{state=\"NoWheel\"} 1",
            "knack_packages_environments{state=\"Ready\"} 0",
            "knack_packages_builds_total{result=\"NoWheel\"} 1",
            "knack_packages_builds_total{result=\"Ready\"} 1",
            "knack_packages_builds_total{result=\"IndexUnreachable\"} 0",
            "knack_packages_build_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
