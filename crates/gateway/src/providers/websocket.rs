//! Websockets of the provider's (realtime sessions): joined byte by byte. No skills are in them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue};
use knack_serving::Stop;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::sleep;

/// A session in which neither side sends anything for this long is over; it ends within twice the time. Both sides of a websocket
/// that is in use send pings.
const IDLE: Duration = Duration::from_mins(5);
/// The longest session: more than providers allow (OpenAI: an hour). Who its client is was checked when it began.
const LONGEST: Duration = Duration::from_hours(2);
/// Bytes that are read at once, one buffer for each direction: with 4096 connections 64 MiB.
const BUFFER_BYTES: usize = 8 << 10;

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// One side closed it.
    Closed,
    /// One side left in the middle of it.
    Lost,
    /// Neither side sent anything.
    Idle,
    /// It lasted too long.
    TooLong,
    /// The gateway stops: a session has no end of its own that could be waited for.
    Stopped,
}

impl SessionEnd {
    /// The words for the log, unless it ended as sessions do.
    pub(super) fn reason(self) -> Option<String> {
        match self {
            Self::Closed => None,
            Self::Lost => Some("the connection of one side was lost".to_owned()),
            Self::Idle => Some(format!("nothing was sent for {} minutes", IDLE.as_secs() / 60)),
            Self::TooLong => Some(format!("it lasted longer than {} hours", LONGEST.as_secs() / 3600)),
            Self::Stopped => Some("the gateway stops".to_owned()),
        }
    }
}

/// Adds the headers of one hop that ask for a websocket, or grant it.
pub(super) fn insert_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// Joins the client's connection and the provider's until one of them ends, a bound is reached, or the gateway stops.
pub(super) async fn join(
    client: impl Future<Output = io::Result<impl AsyncRead + AsyncWrite>>,
    provider: impl Future<Output = io::Result<impl AsyncRead + AsyncWrite>>,
    stops: &Stop,
) -> SessionEnd {
    let moved = AtomicU64::new(0);
    let both = async {
        let (client, provider) = tokio::try_join!(client, provider)?;
        let (from_client, to_client) = tokio::io::split(client);
        let (from_provider, to_provider) = tokio::io::split(provider);
        tokio::try_join!(
            copy(from_client, to_provider, &moved),
            copy(from_provider, to_client, &moved)
        )
    };
    tokio::select! {
        ended = both => if ended.is_ok() { SessionEnd::Closed } else { SessionEnd::Lost },
        () = idle(&moved) => SessionEnd::Idle,
        () = sleep(LONGEST) => SessionEnd::TooLong,
        () = stops.close.cancelled() => SessionEnd::Stopped,
        () = stops.cut.cancelled() => SessionEnd::Stopped,
    }
}

/// Copies until `from` ends, and closes the sending side of `to`. The other direction goes on: what a side still sends
/// is passed on.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, moved: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// Resolves when nothing was moved for [`IDLE`].
async fn idle(moved: &AtomicU64) {
    loop {
        let before = moved.load(Ordering::Relaxed);
        sleep(IDLE).await;
        if moved.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    /// Joins two connections, and returns their other ends.
    fn joined(stops: &Stop) -> (DuplexStream, DuplexStream, impl Future<Output = SessionEnd> + use<>) {
        let ((client, ours), (provider, theirs)) = (duplex(64), duplex(64));
        let stops = stops.clone();
        let session = async move { join(async { Ok(ours) }, async { Ok(theirs) }, &stops).await };
        (client, provider, session)
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_without_a_byte_ends_and_one_with_pings_lasts_to_the_bound() {
        let (begun, stops) = (Instant::now(), Stop::default());
        let (_client, _provider, session) = joined(&stops);
        assert_eq!(session.await, SessionEnd::Idle);
        assert!(begun.elapsed() >= IDLE && begun.elapsed() <= IDLE * 2);

        let (begun, stops) = (Instant::now(), Stop::default());
        let (mut client, mut provider, session) = joined(&stops);
        let pings = async {
            let mut byte = [0];
            loop {
                client.write_all(b"p").await.unwrap();
                provider.read_exact(&mut byte).await.unwrap();
                sleep(IDLE / 2).await;
            }
        };
        let ended = tokio::select! { ended = session => ended, () = pings => SessionEnd::Lost };
        assert_eq!(ended, SessionEnd::TooLong);
        assert!(begun.elapsed() >= LONGEST && begun.elapsed() < LONGEST + IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_has_ended_still_hears_the_other_one() {
        let stops = Stop::default();
        let (mut client, mut provider, session) = joined(&stops);
        let session = tokio::spawn(session);
        client.write_all(b"last").await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = Vec::new();
        provider.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"last");
        provider.write_all(b"answer").await.unwrap();
        drop(provider);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"answer");
        assert_eq!(session.await.unwrap(), SessionEnd::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_a_session_and_a_connection_that_never_came_is_lost() {
        let stops = Stop::default();
        let (_client, _provider, session) = joined(&stops);
        stops.close.cancel();
        assert_eq!(session.await, SessionEnd::Stopped);

        let (_client, ours) = duplex(64);
        let gone = async { Err::<DuplexStream, _>(io::Error::other("gone")) };
        assert_eq!(join(async { Ok(ours) }, gone, &Stop::default()).await, SessionEnd::Lost);
    }
}
