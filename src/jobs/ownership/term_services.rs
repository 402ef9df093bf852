//! The parts of a term that recovery needs before the pool starts.

use std::sync::Arc;
use std::time::Duration;

use knack_execution::records::{RecordSettings, Records};
use tokio_util::task::AbortOnDropHandle;

use crate::jobs::cluster::Cluster;
use crate::jobs::keys::Keys;
use crate::jobs::pods::launch::Launcher;
use crate::jobs::pods::pod_index::PodIndex;
use crate::jobs::records::job_record::PendingWrites;
use crate::jobs::resolved_runtime::ResolvedRuntime;
use crate::jobs::settings::{JobClients, JobSettings};

/// How long the first list of the pods may take. An API server ends each of its lists after as long; where none comes, the one that
/// this replica is connected to may be at fault, and another replica has another.
const LIST_PATIENCE: Duration = Duration::from_mins(1);

/// See the module.
pub(super) struct TermServices {
    pub(super) launcher: Launcher,
    pub(super) records: Arc<Records>,
    pub(super) unwritten: PendingWrites,
    /// The retention that the runtime had when the term began.
    pub(super) retention: Duration,
    /// The watch of the pods.
    pub(super) watch: AbortOnDropHandle<()>,
}

impl TermServices {
    /// Starts the watch of the pods and waits for the first list. `None`: it did not come.
    pub(super) async fn start(
        clients: &JobClients,
        resolved: &ResolvedRuntime,
        settings: &JobSettings,
        unwritten: PendingWrites,
    ) -> Option<Self> {
        let cluster = Cluster::new(clients, &resolved.namespace);
        let (index, watch) = PodIndex::start(cluster.pods.clone(), &resolved.name);
        tokio::time::timeout(LIST_PATIENCE, index.wait_until_synced())
            .await
            .ok()?;
        Some(Self {
            launcher: Launcher::new(
                cluster,
                index,
                Keys::new(settings.secret),
                settings.replica.clone(),
                settings.start_timeout,
                settings.memory.as_ref().map(|memory| memory.all.clone()),
            ),
            records: Records::sharing(
                RecordSettings {
                    retention: resolved.ttl,
                    admission: resolved.admission,
                    ..settings.records.clone()
                },
                settings.memory.as_ref().map(|memory| memory.kept.clone()),
            ),
            unwritten,
            retention: resolved.ttl,
            watch,
        })
    }
}
