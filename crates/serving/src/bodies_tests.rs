use super::*;

const MIB: usize = 1 << 20;
const A: &str = "a";
const B: &str = "b";

/// Up to this many bytes a request is small.
const SMALL_BYTES: usize = 256 << 10;

/// Half of the budget is for what is large, and a caller may hold two bodies of the largest size.
fn bodies(bytes: usize) -> Bodies<&'static str> {
    let whole = MemoryBudget::new(bytes);
    let budget = BodyBudget {
        large: whole.part(bytes / 2),
        whole,
        small_bytes: SMALL_BYTES,
        caller_least_bytes: 2 * BODY_MAX_BYTES,
    };
    Bodies::new(budget, BodyTimes::default())
}

/// Bytes held of the whole budget.
fn held_bytes(bodies: &Bodies<&'static str>) -> usize {
    bodies.budget.whole.held_bytes()
}

fn announcing(bytes: usize) -> HeaderMap {
    [(http::header::CONTENT_LENGTH, bytes.into())].into_iter().collect()
}

#[tokio::test]
async fn bodies_within_the_bounds_come_whole_in_one_or_many_frames() {
    let bodies = bodies(64 * MIB);
    let held = bodies.read(&A, &HeaderMap::new(), Body::from("abc")).await.unwrap();
    assert_eq!(held.bytes, "abc");
    for headers in [HeaderMap::new(), announcing(3)] {
        let frames = futures::stream::iter(["a", "b", "c"].map(Ok::<_, std::io::Error>));
        let held = bodies.read(&A, &headers, Body::from_stream(frames)).await.unwrap();
        assert_eq!(held.bytes, "abc");
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_by_its_length_or_where_it_crosses_it() {
    for (announced, pieces) in [(BODY_MAX_BYTES + 1, 1), (0, 40), (5, 40)] {
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; MIB]));
        let frames = futures::stream::repeat_with(piece).take(pieces);
        let bodies = bodies(64 * MIB);
        let read = bodies.read(&A, &announcing(announced), Body::from_stream(frames)).await;
        assert_eq!(read.unwrap_err(), BodyError::TooLarge, "{announced}");
        assert_eq!(held_bytes(&bodies), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_announced_and_never_comes_holds_nothing_and_ends() {
    let bodies = bodies(64 * MIB);
    let silent = futures::stream::once(async { Ok::<_, std::io::Error>("x") }).chain(futures::stream::pending());
    let reading = tokio::spawn({
        let bodies = bodies.clone();
        async move {
            bodies
                .read(&A, &announcing(BODY_MAX_BYTES), Body::from_stream(silent))
                .await
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        held_bytes(&bodies) < 100 << 10,
        "what has come counts, not what is announced"
    );
    let begun = Instant::now();
    assert_eq!(reading.await.unwrap().unwrap_err(), BodyError::Late);
    assert!(begun.elapsed() < SILENCE_TIMEOUT);
    let trickle = futures::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Some((Ok::<_, std::io::Error>("x"), ()))
    });
    let begun = Instant::now();
    let read = bodies.read(&A, &HeaderMap::new(), Body::from_stream(trickle)).await;
    assert_eq!(read.unwrap_err(), BodyError::Late);
    assert_eq!(begun.elapsed().as_secs(), ARRIVE_TIMEOUT.as_secs());
    assert_eq!(held_bytes(&bodies), 0);
}

#[tokio::test]
async fn large_bodies_leave_room_for_small_ones_and_give_theirs_back() {
    let bodies = bodies(64 * MIB);
    let body = || Body::from(vec![b'x'; 20 * MIB]);
    let mut large = bodies.read(&A, &HeaderMap::new(), body()).await.unwrap();
    let refused = bodies.read(&A, &HeaderMap::new(), body()).await.unwrap_err();
    assert!(matches!(refused, BodyError::Busy(over) if !over.is_final()));
    assert!(large.holding.grow_to(50 * MIB).is_err(), "copies count too");
    large.holding.grow_to(30 * MIB).unwrap();
    let small: Vec<_> = (0..100).map(|_| bodies.hold(&A, SMALL_BYTES).unwrap()).collect();
    drop((large, small));
    assert_eq!(held_bytes(&bodies), 0);
    assert!(bodies.read(&A, &HeaderMap::new(), body()).await.is_ok());
}

#[tokio::test]
async fn one_callers_large_bodies_leave_room_for_anothers() {
    let bodies = bodies(512 * MIB);
    let body = || Body::from(vec![b'x'; 30 * MIB]);
    let mut held = Vec::new();
    while let Ok(body) = bodies.read(&A, &HeaderMap::new(), body()).await {
        held.push(body);
    }
    assert_eq!(held.len(), 4, "half of 256 MiB");
    let other = bodies.read(&B, &HeaderMap::new(), body()).await.unwrap();
    drop((held, other));
    assert_eq!(held_bytes(&bodies), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_passed_on_ends_with_an_error_when_its_sender_is_silent() {
    let silent = futures::stream::once(async { Ok::<_, std::io::Error>("x") }).chain(futures::stream::pending());
    let pieces: Vec<_> = bodies(MIB).passing(Body::from_stream(silent)).collect().await;
    assert_eq!(pieces.len(), 2);
    assert!(pieces[0].is_ok() && pieces[1].is_err());
}

#[tokio::test]
async fn what_is_made_of_a_body_keeps_what_it_needs() {
    let bodies = bodies(64 * MIB);
    let body = Body::from(vec![b'x'; 8 * MIB]);
    let mut held = bodies.read(&A, &HeaderMap::new(), body).await.unwrap();
    for (left, expected) in [(9, 8 * MIB), (6, 6 * MIB), (7, 6 * MIB)] {
        held.holding.shrink_to(left * MIB);
        assert_eq!(held_bytes(&bodies), expected, "{left}");
    }
    held.holding.shrink_to(SMALL_BYTES);
    assert_eq!(held_bytes(&bodies), SMALL_BYTES);
    held.holding.shrink_to(1);
    assert_eq!(held_bytes(&bodies), 1 << 10, "the least share");
    held.holding.grow_to(2 * MIB).unwrap();
    assert_eq!(held_bytes(&bodies), 2 * MIB);
}
