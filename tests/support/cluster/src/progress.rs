//! Whether a test moves on. A test may take as long as the machine needs; it fails when nothing in it moves.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

/// How long a test may make no step. Each step takes seconds on an idle machine of two cores; one with ten times the load gets there too.
pub const STILL: Duration = Duration::from_mins(5);
/// The longest that a test may take whatever it reports: it goes round in a circle then.
const LONGEST: Duration = Duration::from_hours(1);
/// How often the steps are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The last step of a test, by its runtime.
#[derive(Debug, Clone)]
struct Step {
    what: String,
    at: Instant,
}

fn steps() -> MutexGuard<'static, Option<HashMap<Id, Step>>> {
    static STEPS: Mutex<Option<HashMap<Id, Step>>> = Mutex::new(None);
    STEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports a step of the test that this task belongs to: something was waited for and came, or one of many has ended.
pub fn progress(what: impl Into<String>) {
    let step = Step {
        what: what.into(),
        at: Instant::now(),
    };
    if let Ok(handle) = Handle::try_current() {
        steps().get_or_insert_default().insert(handle.id(), step);
    }
}

/// Returns what was stuck, if the test of this runtime makes no step for `still`.
pub(crate) async fn stands_still(still: Duration) -> String {
    let (begun, id) = (Instant::now(), Handle::current().id());
    progress("it began");
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let step = steps().get_or_insert_default().get(&id).cloned();
        let Some(step) = step else { continue };
        if step.at.elapsed() > still {
            return format!("nothing moved for {still:?} since: {}", step.what);
        }
        if begun.elapsed() > LONGEST {
            return format!("it did not end within {LONGEST:?}; last: {}", step.what);
        }
    }
}

/// Forgets the test of this runtime.
pub(crate) fn forget() {
    steps().get_or_insert_default().remove(&Handle::current().id());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports a step each tick for a while, then none any more.
    async fn watched(ticks: u32) -> String {
        let stepping = async {
            for tick in 0..ticks {
                tokio::time::sleep(Duration::from_millis(20)).await;
                progress(format!("step {tick}"));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            still = stands_still(Duration::from_secs(1)) => still,
            () = stepping => unreachable!("it never ends"),
        }
    }

    // By a clock that stands while there is something to do: a thread that gets no processor is late for no step.
    #[tokio::test(start_paused = true)]
    async fn a_test_that_moves_goes_on_and_one_that_does_not_says_where_it_stood() {
        assert!(watched(0).await.ends_with("since: it began"));
        // A hundred steps take many times as long as one may.
        let begun = Instant::now();
        assert!(watched(100).await.ends_with("since: step 99"));
        assert!(begun.elapsed() > Duration::from_secs(2));
        forget();
    }
}
