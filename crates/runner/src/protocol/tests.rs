//! The decoder on any bytes in any cuts.

use proptest::prelude::*;

use super::*;

fn decode_all(decoder: &mut Decoder) -> Vec<Result<ToRunner, DecodeError>> {
    std::iter::from_fn(|| decoder.next_frame()).collect()
}

fn bind(byte: u8) -> ToRunner {
    ToRunner::Bind(Bind {
        key: Key::new([byte; KEY_BYTES]),
        protocol_min: PROTOCOL_MIN,
        protocol: PROTOCOL,
    })
}

proptest! {
    #[test]
    fn any_bytes_in_any_cuts_give_the_same_frames(
        bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'{'), Just(b'"'), any::<u8>()], 0..400),
        cut in 1_usize..40,
    ) {
        let mut whole = Decoder::new();
        whole.push(&bytes);
        let expected = decode_all(&mut whole);
        let mut pieces = Decoder::new();
        let mut seen = Vec::new();
        for piece in bytes.chunks(cut) {
            pieces.push(piece);
            seen.extend(decode_all(&mut pieces));
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn frames_survive_the_round_trip(path in ".*", data in prop::collection::vec(any::<u8>(), 0..600), cut in 1_usize..99) {
        let file = StagedFile { path, data: Data(data), append: true, executable: false };
        let frame = ToRunner::Files(Files { area: Area::Work, files: vec![file] });
        let mut decoder = Decoder::new();
        let mut seen = Vec::new();
        for piece in encode(&frame).chunks(cut) {
            decoder.push(piece);
            seen.extend(decode_all(&mut decoder));
        }
        prop_assert_eq!(seen, vec![Ok(frame)]);
    }
}

#[test]
fn a_line_over_the_limit_is_dropped_and_the_next_one_read() {
    let mut decoder = Decoder::new();
    for _ in 0..5 {
        decoder.push(&vec![b'x'; 1 << 20]);
        assert!(decoder.next_frame::<ToRunner>().is_none());
    }
    decoder.push(b"yz\n");
    decoder.push(&encode(&bind(7)));
    assert_eq!(decode_all(&mut decoder), [Err(DecodeError::TooLong), Ok(bind(7))]);
}

#[test]
fn a_bad_line_does_not_stop_the_next() {
    let mut decoder = Decoder::new();
    decoder.push(b"\n  \n{\"type\":\"nothing\"}\n[]\n");
    decoder.push(&encode(&bind(7)));
    let seen = decode_all(&mut decoder);
    assert!(
        matches!(
            seen[..2],
            [Err(DecodeError::Malformed(_)), Err(DecodeError::Malformed(_))]
        ),
        "{seen:?}"
    );
    assert_eq!(seen[2..], [Ok(bind(7))]);
}

#[test]
fn the_documented_lines_are_frames() {
    let page = include_str!("../../../../docs/runner-protocol.md");
    let block = page
        .split("```text")
        .nth(1)
        .unwrap_or_default()
        .split("```")
        .next()
        .unwrap_or_default();
    let joined = block.replace(",\n ", ",");
    let mut count = 0;
    for line in joined.lines().filter(|line| line.starts_with('{')) {
        let frame = line.split("  ").next().unwrap_or_default().trim();
        let known =
            serde_json::from_str::<ToRunner>(frame).is_ok() || serde_json::from_str::<FromRunner>(frame).is_ok();
        assert!(known, "{frame}");
        count += 1;
    }
    assert_eq!(count, 6);
}

#[test]
fn two_ranges_share_their_newest_common_protocol() {
    for (ours, theirs, common) in [
        (3..=3, 3..=3, Some(3)),
        (3..=5, 2..=4, Some(4)),
        (2..=4, 3..=5, Some(4)),
        (3..=5, 5..=9, Some(5)),
        (3..=4, 1..=2, None),
        (1..=2, 3..=4, None),
    ] {
        assert_eq!(common_protocol(&ours, &theirs), common, "{ours:?} {theirs:?}");
    }
}
