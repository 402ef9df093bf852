//! Request bodies in a content coding: the gateway has to read them, so they are decoded within the bounds of any other body.

use std::io::Read;

use brotli_decompressor::Decompressor;
use bytes::Bytes;
use flate2::bufread::GzDecoder;
use http::HeaderMap;
use knack_serving::bodies::BODY_MAX_BYTES;
use knack_serving::run_off_thread_if_large;
use knack_wire::Fault;
use ruzstd::decoding::StreamingDecoder;

use super::exchange::coding;
use crate::http_server::budget::{BodyError, HeldBody, Holding};
use crate::http_server::fault::body_fault;

/// Bytes that are decoded before the bounds are checked again.
const PIECE_BYTES: usize = 64 << 10;
/// Largest window of zstd, which a decoder has to hold: the most that a sender may use over HTTP (RFC 9659).
const ZSTD_WINDOW_BYTES: u64 = 8 << 20;
/// Most frames of zstd, or members of gzip, in one body. Senders write one; each costs a decoder, also without content.
const FRAMES_MAX: usize = 1_024;

/// The codings that are read.
#[derive(Debug, Clone, Copy)]
enum Coding {
    Gzip,
    Zstd,
    Brotli,
}

/// Decodes a body as its headers say. Returns what was received, where that is another thing: a request that nothing is
/// added to goes to the provider as it came.
///
/// Errors: 415 for a coding that is not read, 400 for bytes that are not in it, and those of any body.
pub(crate) async fn decode(held: HeldBody, headers: &HeaderMap) -> Result<(HeldBody, Option<Bytes>), Fault> {
    let Some(word) = coding(headers) else {
        return Ok((held, None));
    };
    let coding = match word.to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Coding::Gzip,
        "zstd" => Coding::Zstd,
        "br" => Coding::Brotli,
        _ => return Err(unknown(&word)),
    };
    let received = held.bytes.clone();
    // A few bytes may be many when they are decoded, so it is not their number that counts here.
    let decoded = run_off_thread_if_large(BODY_MAX_BYTES, move || read(coding, held)).await;
    match decoded {
        Ok(held) => Ok((held, Some(received))),
        Err(DecodeError::Body(error)) => Err(body_fault(error)),
        Err(DecodeError::Broken(why)) => Err(Fault::new(
            400,
            format!("The request body is not in its content coding ({word}): {why}."),
        )),
    }
}

fn unknown(word: &str) -> Fault {
    let text = format!(
        "The request body has the content coding \"{word}\", which this gateway does not read; send it without one, or as \
         gzip, zstd or br."
    );
    Fault {
        retry: false,
        ..Fault::new(415, text)
    }
}

enum DecodeError {
    Body(BodyError),
    Broken(std::io::Error),
}

impl From<std::io::Error> for DecodeError {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Decodes a whole body. Memory is taken as it grows, beside that of the body as it came.
fn read(coding: Coding, held: HeldBody) -> Result<HeldBody, DecodeError> {
    let HeldBody { bytes, mut holding } = held;
    let (source, mut out) = (&bytes[..], Vec::new());
    let (mut rest, mut frames) = (source, 0);
    let size = source.len();
    // One frame after the other; brotli has one.
    while !rest.is_empty() {
        frames += 1;
        if frames > FRAMES_MAX {
            return Err(std::io::Error::other("too many frames").into());
        }
        match coding {
            Coding::Gzip => take(GzDecoder::new(&mut rest), size, &mut out, &mut holding)?,
            Coding::Zstd => {
                let frame = StreamingDecoder::new_with_max_window_size(&mut rest, ZSTD_WINDOW_BYTES);
                take(frame.map_err(std::io::Error::other)?, size, &mut out, &mut holding)?;
            }
            Coding::Brotli => {
                let whole = Decompressor::new(std::mem::take(&mut rest), PIECE_BYTES);
                take(whole, size, &mut out, &mut holding)?;
            }
        }
    }
    out.shrink_to_fit();
    holding.shrink_to(source.len() + out.len());
    Ok(HeldBody {
        bytes: out.into(),
        holding,
    })
}

fn take(mut decoder: impl Read, source: usize, out: &mut Vec<u8>, holding: &mut Holding) -> Result<(), DecodeError> {
    loop {
        let piece = u64::try_from(PIECE_BYTES).unwrap_or(u64::MAX);
        let read = decoder.by_ref().take(piece).read_to_end(out)?;
        if out.len() > BODY_MAX_BYTES {
            return Err(DecodeError::Body(BodyError::TooLarge));
        }
        // The capacity counts, not the length.
        let held = holding.grow_to(source + out.capacity());
        held.map_err(|over| DecodeError::Body(BodyError::Busy(over)))?;
        if read == 0 {
            return Ok(());
        }
    }
}
