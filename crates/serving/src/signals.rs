//! The signals that end a process.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves on Ctrl-C and on SIGTERM. They are caught from this call on, not from the first look at what it returns: a signal
/// that comes before ends the program at once, or not at all where it is the first process of a container. Must be called inside
/// a tokio runtime.
pub fn stop() -> impl Future<Output = ()> + Send {
    caught(1)
}

/// Resolves on the second signal: shut down at once.
pub fn stop_again() -> impl Future<Output = ()> + Send {
    caught(2)
}

fn caught(times: usize) -> impl Future<Output = ()> + Send {
    #[cfg(unix)]
    {
        let [mut interrupt, mut terminate] =
            [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| signal(kind).ok());
        async move {
            for _ in 0..times {
                tokio::select! { () = next(&mut interrupt) => {}, () = next(&mut terminate) => {} }
            }
        }
    }
    #[cfg(not(unix))]
    async move {
        for _ in 0..times {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Never resolves for a signal that cannot be caught.
#[cfg(unix)]
async fn next(caught: &mut Option<Signal>) {
    match caught {
        Some(caught) => drop(caught.recv().await),
        None => std::future::pending().await,
    }
}
