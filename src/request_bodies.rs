//! Request bodies of hub and registry: their part of the process's memory budget, and the answers when there is no room in it.

use axum::body::Body;
use http::HeaderMap;
use knack_hub_api::{HubRefusal, RefusalCode};
use knack_memory::{MemoryBudget, OverBudget};
use knack_serving::bodies::{
    self, ARRIVE_TIMEOUT, BODY_MAX_BYTES, BodyBudget, BodyError, BodyTimes, HeldBody, SILENCE_TIMEOUT,
};

/// Share of the process's memory budget, in eighths, that large bodies and the inputs of waiting runs may take.
const EIGHTHS: usize = 3;
/// Bytes that a request takes of the whole budget; more than this comes from the part for large bodies. A call with its
/// arguments or its source text has this size; a full queue of a runtime usually takes 5 MiB.
const SMALL_BYTES: usize = 16 << 10;

/// The bodies of callers.
#[derive(Debug)]
pub struct Bodies(bodies::Bodies<String>);

impl Bodies {
    /// The bodies' part of a process's memory.
    pub fn of(whole: &MemoryBudget) -> Self {
        let budget = BodyBudget {
            whole: whole.clone(),
            large: whole.part(whole.total_bytes() / 8 * EIGHTHS),
            small_bytes: SMALL_BYTES,
            caller_least_bytes: BODY_MAX_BYTES,
        };
        Self(bodies::Bodies::new(budget, BodyTimes::default()))
    }

    /// Reads a body of a caller.
    ///
    /// Errors: [`RefusalCode::TooLarge`], [`RefusalCode::TooSlow`], [`RefusalCode::Unavailable`] if too many bytes are held,
    /// [`RefusalCode::Invalid`] for a body that breaks off.
    pub async fn read(&self, caller: &str, headers: &HeaderMap, body: Body) -> Result<HeldBody, HubRefusal> {
        self.0.read(&caller.to_owned(), headers, body).await.map_err(refusal)
    }

    /// Reads a body of a caller that has a bound of its own: what it is, and its bytes.
    pub async fn read_within(
        &self,
        what: &str,
        max_bytes: usize,
        caller: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<HeldBody, HubRefusal> {
        let held = self.read(caller, headers, body).await?;
        if held.bytes.len() > max_bytes {
            let text = format!("{what} may have at most {max_bytes} bytes");
            return Err(HubRefusal::new(RefusalCode::TooLarge, text));
        }
        Ok(held)
    }
}

fn refusal(error: BodyError) -> HubRefusal {
    match error {
        BodyError::TooLarge => {
            let text = format!(
                "the request body exceeds {} MiB; base64 makes input files a third larger",
                BODY_MAX_BYTES >> 20
            );
            HubRefusal::new(RefusalCode::TooLarge, text)
        }
        BodyError::Busy(over) => no_room(over),
        BodyError::Late => {
            let text = format!(
                "the body did not arrive in time: the server waits {} s for the next part of it, and {} s for the whole body",
                SILENCE_TIMEOUT.as_secs(),
                ARRIVE_TIMEOUT.as_secs()
            );
            HubRefusal::new(RefusalCode::TooSlow, text)
        }
        BodyError::Broken => HubRefusal::new(RefusalCode::Invalid, "the body ended prematurely"),
    }
}

/// The answer where the memory of the process has no room for what a request needs.
pub(crate) fn no_room(over: OverBudget) -> HubRefusal {
    if over.is_final() {
        let text = format!(
            "the request needs {} MiB, but the memory limit of this process allows {} MiB for it; raise the limit",
            over.asked_bytes >> 20,
            over.total_bytes >> 20
        );
        return HubRefusal::new(RefusalCode::TooLarge, text);
    }
    let text = "the memory of this process for requests is in use at this moment; try again in a second";
    HubRefusal::new(RefusalCode::Unavailable, text).retry_after(1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const MIB: usize = 1 << 20;

    /// The budget under the chart's limit of 512 MiB.
    fn bodies() -> (MemoryBudget, Bodies) {
        let whole = MemoryBudget::of_limit(Some(512 << 20));
        let bodies = Bodies::of(&whole);
        (whole, bodies)
    }

    fn announcing(bytes: usize) -> HeaderMap {
        HeaderMap::from_iter([(http::header::CONTENT_LENGTH, bytes.into())])
    }

    async fn read(bodies: &Bodies, caller: &str, bytes: usize) -> Result<HeldBody, HubRefusal> {
        let body = Body::from(vec![0; bytes]);
        bodies.read(caller, &announcing(bytes), body).await
    }

    #[tokio::test]
    async fn three_hundred_waiting_runs_of_24_mib_take_what_their_caller_may_and_others_still_come_in() {
        let (whole, bodies) = bodies();
        let (mut waiting, mut refused) = (Vec::new(), 0);
        for index in 0..300 {
            let caller = ["loud", "louder"][index % 2];
            match read(&bodies, caller, 24 * MIB).await {
                // The body is gone; the request that was made of it waits.
                Ok(mut held) => {
                    held.holding.shrink_to(18 * MIB);
                    waiting.push(held.holding);
                }
                Err(refusal) => {
                    assert_eq!(refusal.code, RefusalCode::Unavailable);
                    refused += 1;
                }
            }
        }
        assert!(waiting.len() >= 4 && refused > 290, "{} {refused}", waiting.len());
        assert!(whole.held_bytes() <= 96 * MIB, "{}", whole.held_bytes());
        // A call of a third caller is accepted, however much two others hold.
        let other = read(&bodies, "quiet", SMALL_BYTES).await.unwrap();
        assert_eq!(other.bytes.len(), SMALL_BYTES);
        drop((waiting, other));
        assert_eq!(whole.held_bytes(), 0);
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_counted_as_it_comes() {
        let (whole, bodies) = bodies();
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![0; MIB]));
        let body = Body::from_stream(futures::stream::iter((0..8).map(move |_| piece())));
        let held = bodies.read("a", &HeaderMap::new(), body).await.unwrap();
        assert_eq!(held.bytes.len(), 8 * MIB);
        assert!(whole.held_bytes() >= 8 * MIB);
        let endless = Body::from_stream(futures::stream::repeat_with(piece));
        let refusal = bodies.read("b", &HeaderMap::new(), endless).await.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::TooLarge, "{refusal}");
        drop(held);
        assert_eq!(whole.held_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_holds_nothing_and_ends() {
        let (whole, bodies) = bodies();
        let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let refusal = bodies.read("a", &announcing(32 * MIB), silent).await.unwrap_err();
        assert_eq!((refusal.code, whole.held_bytes()), (RefusalCode::TooSlow, 0));
    }

    #[tokio::test]
    async fn a_body_that_can_never_find_room_gets_the_reason() {
        for limit in [64, 128, 512] {
            let bodies = Bodies::of(&MemoryBudget::of_limit(Some(limit << 20)));
            let read = read(&bodies, "a", BODY_MAX_BYTES).await;
            match read {
                Ok(held) => assert_eq!(held.bytes.len(), BODY_MAX_BYTES),
                Err(refusal) => assert!(
                    limit < 256 && refusal.code == RefusalCode::TooLarge && refusal.message.contains("raise the limit"),
                    "{limit}: {refusal}"
                ),
            }
        }
    }
}
