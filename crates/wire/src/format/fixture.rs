//! Test help for Gemini and Responses: the wire examples, and the loop's decisions in short.

use std::path::PathBuf;

use bytes::Bytes;

use super::{Codec, DecodedFrame, Dialect, Ending, FramePart, UnitKind};
use crate::frame::{SseDecoder, SseEvent};
use crate::request::Request;
use crate::route::{CallKind, Format, ModelRoute};

/// The text of an example.
pub(crate) fn text(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The events of a stream example, comments and bare line ends left out.
pub(crate) fn events(name: &str) -> Vec<String> {
    text(name)
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(str::to_owned)
        .collect()
}

/// A request of a format.
pub(crate) fn request(format: Format, body: &str) -> Request {
    let route = ModelRoute {
        format,
        kind: CallKind::Generate,
        model: Some("m".to_owned()),
        stream: true,
        vertex: false,
    };
    Request::parse(route, Bytes::from(body.to_owned())).unwrap()
}

/// The data of all events of a client's stream.
pub(crate) fn data(stream: &[u8]) -> Vec<String> {
    let mut decoder = SseDecoder::new();
    let mut events = Vec::new();
    decoder.push(stream, &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    events
        .iter()
        .map(|event| String::from_utf8(event.data.to_vec()).unwrap())
        .collect()
}

/// Runs rounds of a stream through a codec, with calls of `ours` hidden, and returns what the client gets.
pub(crate) fn stream(
    dialect: &dyn Dialect,
    request: &Request,
    rounds: &[Vec<String>],
    ours: &str,
) -> (Vec<u8>, Box<dyn Codec>) {
    let mut codec = dialect.codec(request, super::CodecOptions::default());
    let mut out = Vec::new();
    for (index, round) in rounds.iter().enumerate() {
        codec.begin_round();
        let mut fields = Shown::new(ours, index == 0);
        for event in round {
            let event = SseEvent {
                name: Bytes::new(),
                data: Bytes::from(event.clone()),
            };
            let frame = codec.frame(event).unwrap();
            fields.take(codec.as_mut(), frame, &mut out);
        }
    }
    codec.finish(Ending::AsCame, &[], &mut out);
    (out, codec)
}

/// Runs whole bodies through a codec.
pub(crate) fn bodies(
    dialect: &dyn Dialect,
    request: &Request,
    rounds: &[String],
    ours: &str,
) -> (String, Box<dyn Codec>) {
    let mut codec = dialect.codec(request, super::CodecOptions::default());
    let mut out = Vec::new();
    for (index, round) in rounds.iter().enumerate() {
        codec.begin_round();
        let frame = codec.body(Bytes::from(round.clone())).unwrap();
        Shown::new(ours, index == 0).take(codec.as_mut(), frame, &mut out);
    }
    codec.finish(Ending::AsCame, &[], &mut out);
    (String::from_utf8(out).unwrap(), codec)
}

/// The shown part of a round: everything but Knack's calls, the reasoning before them, and later starts.
struct Shown<'o> {
    ours: &'o str,
    first: bool,
    hidden: Vec<u32>,
    /// Frames of a unit that is shown or hidden with the next one.
    held: Vec<DecodedFrame>,
    pair: Option<u32>,
}

impl<'o> Shown<'o> {
    fn new(ours: &'o str, first: bool) -> Self {
        Self {
            ours,
            first,
            hidden: Vec::new(),
            held: Vec::new(),
            pair: None,
        }
    }

    fn take(&mut self, codec: &mut dyn Codec, frame: DecodedFrame, out: &mut Vec<u8>) {
        for part in &frame.parts {
            let FramePart::Unit { id, kind } = part else { continue };
            let is_ours = *kind == UnitKind::Call && codec.call(*id).is_some_and(|call| call.name == self.ours);
            if is_ours {
                self.hidden.push(*id);
                self.hidden.extend(self.pair.take());
                self.held.clear();
            } else if *kind != UnitKind::Paired {
                self.pair = None;
                for held in std::mem::take(&mut self.held) {
                    codec.show(&held, &vec![true; held.parts.len()], out);
                }
            }
            if *kind == UnitKind::Paired {
                self.pair = Some(*id);
            }
        }
        if frame.parts.len() == 1 && frame.parts[0].unit().is_some_and(|id| Some(id) == self.pair) {
            self.held.push(frame);
            return;
        }
        let shown: Vec<bool> = frame.parts.iter().map(|part| self.shows(part)).collect();
        codec.show(&frame, &shown, out);
    }

    fn shows(&self, part: &FramePart) -> bool {
        match part {
            FramePart::Start => self.first,
            FramePart::Usage | FramePart::Stop { .. } | FramePart::End => false,
            other => other.unit().is_none_or(|id| !self.hidden.contains(&id)),
        }
    }
}
