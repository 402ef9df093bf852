//! How bytes leave the mock: framing, and a plan of chunks, pauses and accidents. The plan is a value; only
//! [`body_of`] meets the clock and the network.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;

use super::script::{Delivery, LineEnd};

/// Pause before a connection is broken, so that the bytes before the break are on the wire.
const BEFORE_BREAK: Duration = Duration::from_millis(5);
/// The bytes that `garbage_after_bytes` sends if the script names none: no UTF-8, no event, no JSON.
const GARBAGE: &[u8] = b"\xff\xfe\x00{]garbage\n\n";

/// One act of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Send these bytes as one chunk.
    Send(Bytes),
    /// Wait.
    Pause(Duration),
    /// Say nothing more until the caller leaves.
    Hang,
    /// Break the connection.
    Break,
}

/// One event as bytes: an `event:` line if the format has one, one `data:` line, an empty line.
pub(super) fn frame(kind: Option<&str>, data: &str, line_end: LineEnd) -> Vec<u8> {
    let end = match line_end {
        LineEnd::Lf => "\n",
        LineEnd::Crlf => "\r\n",
        LineEnd::Cr => "\r",
    };
    let kind = kind.map(|kind| format!("event: {kind}{end}")).unwrap_or_default();
    format!("{kind}data: {data}{end}{end}").into_bytes()
}

/// Plans a delivery. `frames` are the events, or one body; every one is a chunk unless `chunk_bytes` says otherwise.
pub(super) fn plan(frames: &[Vec<u8>], delivery: &Delivery) -> Vec<Act> {
    let whole = frames.concat();
    let mut acts = Vec::new();
    if delivery.first_byte_ms > 0 {
        acts.push(Act::Pause(Duration::from_millis(delivery.first_byte_ms)));
    }
    let (mut from, mut sent) = (0, false);
    for cut in cuts(frames, delivery, whole.len()) {
        if cut > from {
            if sent && delivery.delay_ms > 0 {
                acts.push(Act::Pause(Duration::from_millis(delivery.delay_ms)));
            }
            acts.push(Act::Send(Bytes::copy_from_slice(&whole[from..cut])));
            (from, sent) = (cut, true);
        }
        if delivery.garbage_after_bytes == Some(cut) {
            let garbage = delivery.garbage.as_ref().map_or(GARBAGE, |text| text.as_bytes());
            acts.push(Act::Send(Bytes::copy_from_slice(garbage)));
        }
        if delivery.silence_after_bytes == Some(cut) {
            let Some(length) = delivery.silence_ms else {
                acts.push(Act::Hang);
                return acts;
            };
            acts.push(Act::Pause(Duration::from_millis(length)));
        }
        if delivery.die_after_bytes == Some(cut) {
            acts.extend([Act::Pause(BEFORE_BREAK), Act::Break]);
            return acts;
        }
        if delivery.end_after_bytes == Some(cut) {
            return acts;
        }
    }
    acts
}

/// Offsets at which the bytes are cut, ascending and without doubles: chunk ends and the places of accidents. An
/// accident behind the end of the bytes happens at the end.
fn cuts(frames: &[Vec<u8>], delivery: &Delivery, length: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = match delivery.chunk_bytes {
        Some(size) => (0..length).step_by(size.max(1)).skip(1).collect(),
        None => frames
            .iter()
            .scan(0, |end, frame| {
                *end += frame.len();
                Some(*end)
            })
            .collect(),
    };
    cuts.push(length);
    cuts.extend(
        [
            delivery.garbage_after_bytes,
            delivery.silence_after_bytes,
            delivery.die_after_bytes,
            delivery.end_after_bytes,
        ]
        .into_iter()
        .flatten()
        .filter(|offset| *offset <= length),
    );
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Turns a plan into a response body.
pub(super) fn body_of(acts: Vec<Act>) -> Body {
    Body::from_stream(stream::unfold(acts.into_iter(), |mut acts| async move {
        loop {
            match acts.next()? {
                Act::Send(bytes) => return Some((Ok(bytes), acts)),
                Act::Pause(length) => tokio::time::sleep(length).await,
                Act::Hang => std::future::pending::<()>().await,
                Act::Break => {
                    let broken =
                        std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the script breaks the connection");
                    return Some((Err(broken), Vec::new().into_iter()));
                }
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(acts: &[Act]) -> Vec<String> {
        acts.iter()
            .filter_map(|act| {
                if let Act::Send(bytes) = act {
                    Some(String::from_utf8_lossy(bytes).into_owned())
                } else {
                    None
                }
            })
            .collect()
    }

    fn planned(delivery: &Delivery) -> Vec<Act> {
        plan(&[b"abcd".to_vec(), b"efg".to_vec()], delivery)
    }

    #[test]
    fn events_have_the_lines_that_the_format_wants() {
        assert_eq!(frame(None, "{}", LineEnd::Lf), b"data: {}\n\n");
        assert_eq!(
            frame(Some("ping"), "{}", LineEnd::Crlf),
            b"event: ping\r\ndata: {}\r\n\r\n"
        );
        assert_eq!(frame(None, "x", LineEnd::Cr), b"data: x\r\r");
    }

    #[test]
    fn every_event_is_a_chunk_unless_a_size_is_given() {
        assert_eq!(sent(&planned(&Delivery::default())), ["abcd", "efg"]);
        let sized = Delivery {
            chunk_bytes: Some(3),
            delay_ms: 2,
            ..Delivery::default()
        };
        let acts = planned(&sized);
        assert_eq!(sent(&acts), ["abc", "def", "g"]);
        assert_eq!(
            acts.iter()
                .filter(|act| **act == Act::Pause(Duration::from_millis(2)))
                .count(),
            2
        );
    }

    #[test]
    fn chunks_may_split_a_character() {
        let acts = plan(
            &["é".as_bytes().to_vec()],
            &Delivery {
                chunk_bytes: Some(1),
                ..Delivery::default()
            },
        );
        assert_eq!(acts.len(), 2);
    }

    #[test]
    fn accidents_happen_at_their_byte() {
        let dying = planned(&Delivery {
            die_after_bytes: Some(5),
            ..Delivery::default()
        });
        assert_eq!(sent(&dying), ["abcd", "e"]);
        assert_eq!(dying.last(), Some(&Act::Break));
        let ending = planned(&Delivery {
            end_after_bytes: Some(2),
            ..Delivery::default()
        });
        assert_eq!(sent(&ending), ["ab"]);
        let silent = planned(&Delivery {
            silence_after_bytes: Some(4),
            ..Delivery::default()
        });
        assert_eq!(
            (sent(&silent), silent.last()),
            (vec!["abcd".to_owned()], Some(&Act::Hang))
        );
        let paused = planned(&Delivery {
            silence_after_bytes: Some(0),
            silence_ms: Some(9),
            ..Delivery::default()
        });
        assert_eq!(paused[0], Act::Pause(Duration::from_millis(9)));
        assert_eq!(sent(&paused), ["abcd", "efg"]);
        let garbled = planned(&Delivery {
            garbage_after_bytes: Some(1),
            garbage: Some("#".into()),
            ..Delivery::default()
        });
        assert_eq!(sent(&garbled), ["a", "#", "bcd", "efg"]);
    }

    #[test]
    fn the_first_byte_can_wait() {
        let acts = planned(&Delivery {
            first_byte_ms: 3,
            ..Delivery::default()
        });
        assert_eq!(acts[0], Act::Pause(Duration::from_millis(3)));
    }
}
