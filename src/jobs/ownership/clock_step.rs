//! Steps of the wall clock: the ids of executions carry its time, and with them all that a term forgets or refuses by age.

use std::time::Duration;

use knack_execution::records::RecordSettings;
use tokio::time::Instant;

/// How often the clocks are compared.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The wall clock and the monotonic one at one moment.
#[derive(Debug)]
pub(super) struct ClockReading {
    read: fn() -> Duration,
    wall: Duration,
    monotonic: Instant,
}

impl ClockReading {
    /// The reading of now. `read`: the time since the Unix epoch.
    pub(super) fn take(read: fn() -> Duration) -> Self {
        Self {
            read,
            wall: read(),
            monotonic: Instant::now(),
        }
    }

    /// How far the wall clock has been stepped since, if that is more than ids may be ahead of it. One that is only slowed or hastened
    /// takes the monotonic clock with it.
    fn step(&self) -> Option<Duration> {
        let step = (self.wall + self.monotonic.elapsed()).abs_diff((self.read)());
        (step > RecordSettings::CLOCK_SKEW).then_some(step)
    }

    /// Returns when the wall clock has been stepped.
    pub(super) async fn stepped(&self) -> Duration {
        loop {
            if let Some(step) = self.step() {
                return step;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_is_noticed_in_both_directions_and_passing_time_is_none() {
        static WALL: AtomicU64 = AtomicU64::new(0);
        let read = || Duration::from_secs(WALL.load(Ordering::Relaxed));
        for (passed, wall, expected) in [
            (0, 0, None),
            (3600, 3600, None),
            (3600, 3660, None),
            (3600, 3540, None),
            (3600, 3661, Some(61)),
            (3600, 3539, Some(61)),
            (0, -7200, Some(7200)),
        ] {
            WALL.store(1_763_770_000, Ordering::Relaxed);
            let reading = ClockReading::take(read);
            tokio::time::advance(Duration::from_secs(passed)).await;
            WALL.store(1_763_770_000_u64.saturating_add_signed(wall), Ordering::Relaxed);
            let step = reading.step().map(|step| step.as_secs());
            assert_eq!(step, expected, "{passed} s passed, and the clock went {wall} s");
        }
    }
}
