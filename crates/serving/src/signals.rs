//! The signals that end a process.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves on Ctrl-C, on SIGTERM, and on SIGHUP, which comes when the terminal is closed. They are caught from this call on, not
/// from the first poll of what it returns: a signal that comes before ends the program at once, or not at all where it
/// is the first process of a container. A SIGHUP that the program was started to ignore (`nohup`) stays ignored. Must
/// be called inside a tokio runtime.
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
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = (!ignores_hangup(&status)).then(SignalKind::hangup);
        let [mut interrupt, mut terminate, mut hangup] =
            [Some(SignalKind::interrupt()), Some(SignalKind::terminate()), hangup]
                .map(|kind| kind.and_then(|kind| signal(kind).ok()));
        async move {
            for _ in 0..times {
                tokio::select! {
                    () = next(&mut interrupt) => {}
                    () = next(&mut terminate) => {}
                    // A terminal that is closed sends it more than once: its shell, and the kernel when that ends.
                    () = next(&mut hangup) => hangup = None,
                }
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

/// Whether a process ignores SIGHUP, by the text of its `/proc/PID/status` (`SigIgn` is a mask in hexadecimal, proc(5)).
#[cfg(unix)]
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Never resolves for a signal that cannot be caught.
#[cfg(unix)]
async fn next(caught: &mut Option<Signal>) {
    match caught {
        Some(caught) => drop(caught.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_is_ignored_where_the_mask_of_the_process_has_it() {
        for (status, ignored) in [
            ("Name:\tknack\nSigIgn:\t0000000000001001\nSigCgt:\t0\n", true),
            ("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", false),
            ("SigIgn:\tnone\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hangup(status), ignored, "{status}");
        }
    }
}
