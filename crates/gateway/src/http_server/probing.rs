//! The answers of a gateway's `/readyz` and `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use knack_serving::probes::Probes;

use crate::Gateway;
use crate::catalog::Snapshot;

/// A hub that is silent for longer than this is reported as silent: it sends a line every 10 s.
const SILENT: Duration = Duration::from_secs(30);

/// The probes of a gateway.
pub(crate) struct GatewayProbes {
    pub(crate) gateway: Arc<Gateway>,
    /// Set when requests are taken.
    pub(crate) started: Arc<AtomicBool>,
}

impl Probes for GatewayProbes {
    fn ready(&self) -> Result<String, String> {
        if self.gateway.is_draining() {
            return Err("draining".to_owned());
        }
        if !self.started.load(Ordering::Acquire) {
            return Err("waiting for the first catalog".to_owned());
        }
        let source = match &self.gateway.catalog_age {
            Some(age) if age.is_saved() => CatalogOrigin::Saved(age.get()),
            Some(age) => CatalogOrigin::Hub(age.get()),
            None => CatalogOrigin::Hub(Duration::ZERO),
        };
        Ok(words(&self.gateway.catalog.current(), source))
    }

    fn metrics(&self) -> String {
        self.gateway.metrics_text()
    }
}

/// Where a catalog is from, and the time since the hub sent or confirmed it.
#[derive(Debug, Clone, Copy)]
enum CatalogOrigin {
    Hub(Duration),
    /// The disk: this process has none of the hub's yet.
    Saved(Duration),
}

fn words(snapshot: &Snapshot, source: CatalogOrigin) -> String {
    if let Some(reason) = &snapshot.absent {
        return format!("without catalog: {reason}");
    }
    let served = format!("revision={} skills={}", snapshot.revision, snapshot.skills.len());
    match source {
        CatalogOrigin::Saved(age) => format!("{served} catalog=saved age_seconds={}", age.as_secs()),
        CatalogOrigin::Hub(age) if age > SILENT => format!("{served} catalog=last age_seconds={}", age.as_secs()),
        CatalogOrigin::Hub(_) => served,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::RuntimeSettings;

    #[test]
    fn readiness_says_how_old_a_catalog_is_when_the_hub_is_silent() {
        let absent = Snapshot::without_catalog(RuntimeSettings::default(), "why");
        let mut present = Snapshot::without_catalog(RuntimeSettings::default(), "");
        present.absent = None;
        let seconds = Duration::from_secs;
        for (snapshot, source, expected) in [
            (&present, CatalogOrigin::Hub(seconds(30)), "skills=0"),
            (
                &present,
                CatalogOrigin::Hub(seconds(31)),
                "skills=0 catalog=last age_seconds=31",
            ),
            (
                &present,
                CatalogOrigin::Saved(seconds(0)),
                "skills=0 catalog=saved age_seconds=0",
            ),
            (&absent, CatalogOrigin::Saved(seconds(9)), "without catalog: why"),
        ] {
            let text = words(snapshot, source);
            assert!(text.ends_with(expected), "{source:?}: {text}");
        }
    }
}
