//! Following the hub's stream: the secret of all replicas, and which values there are.

use std::sync::Arc;
use std::time::Duration;

use knack_hub_api::client::HubError;
use knack_hub_api::{KeptKey, KeptLine, RefusalCode};
use knack_wire::history::HistorySecret;
use tokio::sync::watch;
use tokio::time::Instant;

use super::index::ReplicaIndex;
use super::{LinkState, Replicas};
use crate::callers::caller::CallerSecret;

/// First wait before connecting again; doubled up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// Longest pause between tries, and so the longest delay after a hub returned.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause after a hub that does not serve the stream: an older version, which is upgraded later.
const WAIT_OLDER: Duration = Duration::from_mins(1);
/// A stream that lasted this long counts as healthy: the next begins at once.
const STABLE: Duration = Duration::from_secs(10);

/// Follows until the task is ended.
pub(super) async fn follow(replicas: Arc<Replicas>, secret: Arc<CallerSecret>, first: watch::Sender<bool>) {
    let mut link = Link {
        replicas,
        secret,
        first,
        last_secret: None,
    };
    let mut wait = WAIT_FIRST;
    loop {
        let begun = Instant::now();
        let ended = link.once().await;
        let was_linked = link.lose();
        let error = ended.err();
        if was_linked {
            tracing::info!(
                error = error.as_ref().map(tracing::field::display),
                "the link to the other replicas ended; reconnecting"
            );
        } else {
            tracing::debug!(
                error = error.as_ref().map(tracing::field::display),
                "no link to the other replicas yet"
            );
        }
        if was_linked && begun.elapsed() >= STABLE {
            wait = WAIT_FIRST;
            continue;
        }
        let pause = match &error {
            Some(HubError::Refused(refusal)) if refusal.code == RefusalCode::NotFound => WAIT_OLDER,
            _ => wait,
        };
        tokio::time::sleep(pause).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}

struct Link {
    replicas: Arc<Replicas>,
    secret: Arc<CallerSecret>,
    first: watch::Sender<bool>,
    /// The last secret that the hub sent.
    last_secret: Option<KeptKey>,
}

impl Link {
    /// One stream, to its end.
    async fn once(&mut self) -> Result<(), HubError> {
        let replicas = Arc::clone(&self.replicas);
        let path = format!("/v1/kept?runtime={}", replicas.runtime);
        let (hub, path) = (&replicas.hub, &path);
        let mut lines = replicas
            .at_owner(|at| async move { hub.at(at.as_ref().map(|at| at.as_str())).watch(path).await })
            .await?;
        // The list of values is sent from the beginning; until it is complete, the previous list counts.
        let mut listing = Some(ReplicaIndex::default());
        while let Some(line) = lines.next_value::<KeptLine>().await? {
            match line {
                KeptLine::Hello(hello) => self.begin(hello.secret),
                KeptLine::Kept(value) => match (value.cancels().copied(), &mut listing) {
                    // The hub keeps none: it is of this moment, whether the list is whole or not.
                    (Some(request), _) => {
                        replicas.cancellations.cancel(&request.0);
                    }
                    (None, Some(index)) => index.add(value),
                    (None, None) => replicas.update(|index| index.add(value)),
                },
                KeptLine::Synced => {
                    if let Some(listed) = listing.take() {
                        replicas.update(|index| *index = listed);
                        self.synced();
                    }
                }
                KeptLine::Ping | KeptLine::Unknown => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, secret: KeptKey) {
        if self.last_secret.replace(secret) != Some(secret) {
            // Before the first one there was no catalog, or a saved one without runs, so nothing or little was kept under
            // the secret of this process. A later one follows a new key of the hub. Saved turns kept here are lost then, which
            // is never an error.
            self.replicas.update(|index| *index = ReplicaIndex::default());
            self.secret.replace(HistorySecret::new(secret.0));
        }
    }

    fn synced(&self) {
        *self.replicas.state() = LinkState::Linked;
        self.replicas.metrics.linked(true);
        self.first.send_replace(true);
        tracing::info!("linked to the other replicas of this gateway");
    }

    /// The stream ended; returns whether it was healthy.
    fn lose(&self) -> bool {
        let mut state = self.replicas.state();
        let was_linked = *state == LinkState::Linked;
        if was_linked {
            *state = LinkState::Lost(Instant::now());
            self.replicas.metrics.linked(false);
        }
        was_linked
    }
}
