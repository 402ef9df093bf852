//! Re-checks a caller's permission while its stream is open, since the permission can end before the stream.

use std::sync::Arc;
use std::time::Duration;

use knack_hub_api::RefusalCode;
use tokio::time::Instant;

use super::HubState;
use crate::account_auth::ServiceAccountCaller;
use crate::hub::access::GrantedCaller;

/// How often the right of an open stream is checked again.
const RIGHT_EVERY: Duration = Duration::from_secs(30);

/// The reader of a stream, and what was granted when the stream began.
pub(super) struct StreamReader {
    pub(super) state: Arc<HubState>,
    pub(super) granted: GrantedCaller,
    caller: ServiceAccountCaller,
    /// When it is checked again.
    pub(super) check_at: Instant,
}

impl StreamReader {
    pub(super) fn new(state: Arc<HubState>, caller: ServiceAccountCaller, granted: GrantedCaller) -> Self {
        Self {
            state,
            granted,
            caller,
            check_at: Instant::now() + RIGHT_EVERY,
        }
    }

    /// Checks again: `None` once the token has expired, the right is withdrawn, or the current right is not sufficient.
    /// An API server that does not answer withdraws nothing.
    pub(super) async fn check(&mut self, will_do: impl FnOnce(&GrantedCaller, &GrantedCaller) -> bool) -> Option<()> {
        self.check_at = Instant::now() + RIGHT_EVERY;
        let now = knack_execution::now().as_secs();
        if self.caller.expires <= now {
            return None;
        }
        let holds = match self.state.access.check(&self.caller, &self.granted.name).await {
            Ok(granted) => will_do(&self.granted, &granted),
            Err(refusal) => refusal.code == RefusalCode::Unavailable,
        };
        holds.then_some(())
    }
}
