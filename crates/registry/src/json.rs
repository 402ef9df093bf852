//! JSON that others wrote, as values, within a bound: a list of small values takes ten times the memory of its text.

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::answer::{Refusal, RefusalKind};

/// From this size on a body is read beside the threads that serve requests: a MiB takes a few milliseconds, and bodies may have 32.
const ASIDE_BYTES: usize = 1 << 20;
/// Such bodies that are read at once: no call of these APIs needs one.
static ASIDE: Semaphore = Semaphore::const_new(2);

/// Values of one text: a hundred times as many as any body of these APIs has, and a few megabytes of memory.
const VALUES_MAX: usize = 100_000;

/// Why a text was not read.
#[derive(Debug, thiserror::Error)]
pub enum JsonBodyError {
    /// It is no JSON.
    #[error("not valid JSON: {0}")]
    Invalid(#[from] serde_json::Error),
    /// It has too many values.
    #[error("too large: it has more than {VALUES_MAX} JSON values")]
    TooMany,
}

/// Reads a text. It is weighed before a value is made.
///
/// # Errors
///
/// No JSON, or too many values.
pub fn read_json(text: &[u8]) -> Result<Value, JsonBodyError> {
    weigh_json(text)?;
    Ok(serde_json::from_slice(text)?)
}

/// Refuses a text of too many values, for those who read it themselves: one begins at each bracket and follows each comma, outside
/// of strings.
///
/// # Errors
///
/// [`JsonBodyError::TooMany`].
pub fn weigh_json(text: &[u8]) -> Result<(), JsonBodyError> {
    let (mut values, mut in_string, mut is_escaped) = (0, false, false);
    for byte in text {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' | b',' => values += 1,
            _ => {}
        }
        if values > VALUES_MAX {
            return Err(JsonBodyError::TooMany);
        }
    }
    Ok(())
}

/// Reads a body by a function, a long one beside the threads that serve requests.
pub(crate) async fn read_aside<T: Send + 'static>(
    body: &Bytes,
    read: impl FnOnce(&[u8]) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    if body.len() < ASIDE_BYTES {
        return read(body);
    }
    let body = body.clone();
    // An error means that the semaphore is closed, which it never is.
    let turn = ASIDE.acquire().await;
    // The turn goes with the reading, which goes on when the client has gone.
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        read(&body)
    })
    .await;
    done.unwrap_or_else(|error| {
        let text = format!("the body could not be read: {error}");
        Err(Refusal::new(RefusalKind::Failed, "body", text))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_of_many_values_is_refused_before_it_is_read() {
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 1));
        assert!(matches!(
            read_json(list(VALUES_MAX + 1).as_bytes()),
            Err(JsonBodyError::TooMany)
        ));
        assert!(read_json(list(VALUES_MAX - 1).as_bytes()).is_ok());
        assert!(matches!(
            read_json(&b"[".repeat(VALUES_MAX + 1)),
            Err(JsonBodyError::TooMany)
        ));
        assert!(matches!(read_json(&b"[".repeat(200)), Err(JsonBodyError::Invalid(_))));
    }

    /// Whether another task of the only thread runs while a body is read, which takes so long at most.
    fn others_go_on(bytes: usize, longest: Duration) -> bool {
        crate::fixture::wait(async {
            let (sender, receiver) = mpsc::channel();
            let other = tokio::spawn(async move { sender.send(()) });
            let body = Bytes::from(vec![b' '; bytes]);
            let read = move |_: &[u8]| Ok(receiver.recv_timeout(longest).is_ok());
            let went_on = read_aside(&body, read).await.unwrap();
            other.abort();
            went_on
        })
    }

    #[test]
    fn a_long_body_delays_nobody() {
        assert!(others_go_on(ASIDE_BYTES, Duration::from_mins(1)));
        assert!(!others_go_on(ASIDE_BYTES - 1, Duration::from_secs(1)), "the control");
    }

    #[test]
    fn brackets_and_commas_in_strings_are_no_values() {
        let text = "[,{\"\\".repeat(VALUES_MAX);
        let value = json!({"a": text, "b": ["\\", "\""]});
        assert_eq!(read_json(value.to_string().as_bytes()).unwrap(), value);
    }
}
