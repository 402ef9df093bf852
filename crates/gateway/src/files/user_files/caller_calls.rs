//! How often one caller may ask the store of files.

use std::sync::Arc;

use knack_serving::sources::{Pace, SourcePermit, Sources};
use tokio::time::Instant;

use super::files_caller::FilesCaller;
use super::refusal::FilesRefusal;

/// The calls of the callers of one process to its store.
#[derive(Debug)]
pub(super) struct CallerCalls {
    pace: Pace,
    sources: Arc<Sources>,
}

impl CallerCalls {
    /// Calls of each caller at this pace.
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            pace,
            sources: Arc::new(Sources::new(pace)),
        }
    }

    /// The right of a caller to one call, for which a model request waits.
    pub(super) async fn turn(&self, who: &FilesCaller) -> Result<SourcePermit, FilesRefusal> {
        let caller = knack_skill::digest::hex(&who.counted);
        // A key costs its sender nothing, an address does.
        let group = who
            .address
            .map_or_else(|| caller.clone(), |address| address.to_string());
        loop {
            let now = Instant::now();
            if let Some(turn) = self.sources.take_of_group(&group, &caller, now) {
                return Ok(turn);
            }
            if who.until.is_none_or(|until| until <= now) {
                return Err(FilesRefusal::TooOften(self.text()));
            }
            tokio::time::sleep(self.pace.refill).await;
        }
    }

    fn text(&self) -> String {
        let Pace { at_once, burst, refill } = self.pace;
        format!(
            "Too many requests about files by this caller: at most {at_once} at once, and {burst} in a burst, then one every {} ms; try \
             again in a second.",
            refill.as_millis()
        )
    }
}
