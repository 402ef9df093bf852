//! The signals that end a process.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves on Ctrl-C and on SIGTERM. They are caught from this call on, not from the first look at what it returns: a signal
/// that comes before ends the program at once, or not at all where it is the first process of a container. Must be called inside
/// a tokio runtime.
pub fn stop() -> impl Future<Output = ()> + Send {
    #[cfg(unix)]
    {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
        async move {
            tokio::select! { () = next(interrupt) => {}, () = next(terminate) => {} }
        }
    }
    #[cfg(not(unix))]
    async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Never resolves for a signal that cannot be caught.
#[cfg(unix)]
async fn next(caught: Option<Signal>) {
    match caught {
        Some(mut caught) => drop(caught.recv().await),
        None => std::future::pending().await,
    }
}
