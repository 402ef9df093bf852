//! What kube-proxy is to a hub's gateways: one address before several replicas.

use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// Hands each connection to one of the replicas, in turn; one that refuses is passed over, as an endpoint that is not
/// ready. One that does not answer is not: a Service does not look into its connections.
pub(crate) struct Service {
    pub(crate) url: String,
    replicas: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let replicas: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = Arc::clone(&replicas);
        let task = tokio::spawn(async move {
            for turn in 0_usize.. {
                let Ok((client, _)) = listener.accept().await else {
                    continue;
                };
                let mut order = known.lock().unwrap().clone();
                let count = order.len().max(1);
                order.rotate_left(turn % count);
                tokio::spawn(forward(client, order));
            }
        });
        Self {
            url,
            replicas,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// From now on these, by `host:port`; open connections continue.
    pub(crate) fn point_to(&self, replicas: impl IntoIterator<Item = String>) {
        *self.replicas.lock().unwrap() = replicas.into_iter().collect();
    }
}

async fn forward(mut client: TcpStream, replicas: Vec<String>) {
    for replica in replicas {
        if let Ok(mut replica) = TcpStream::connect(replica).await {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut replica).await;
            return;
        }
    }
}
