//! The wire formats. A format is a [`Dialect`] (requests, errors) and a [`Codec`] (one response being rewritten).
//!
//! The loop (`drive`) is independent of them: it sees [`FramePart`]s and decides which are shown.

mod chat;
mod container;
#[cfg(test)]
mod fixture;
pub(crate) mod gemini;
mod messages;
mod openai_error;
pub(crate) mod responses;
mod run_ids;
pub(crate) mod splice;

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::drive::{CallResult, GeneratedFile};
use crate::fault::Fault;
use crate::frame::SseEvent;
use crate::json::{self, Edits, Span};
use crate::request::{Attachment, Injection, InlineSkill, MessageText, Request, RequestFields};
use crate::route::Format;
use crate::stored::StoredForm;

/// The dialect of a format.
pub(crate) fn dialect(format: Format) -> &'static dyn Dialect {
    match format {
        Format::Chat => &chat::Chat,
        Format::Messages => &messages::Messages,
        Format::Responses => &responses::Responses,
        Format::Gemini => &gemini::Gemini,
    }
}

/// Everything about a format that needs no state.
pub(crate) trait Dialect: RequestDialect + AnswerDialect + Sync {}

impl<T: RequestDialect + AnswerDialect + Sync> Dialect for T {}

/// Requests: what is read of them and what is added.
pub(crate) trait RequestDialect {
    /// The routed leaves.
    fn fields(&self, request: &Request) -> Result<RequestFields, Fault>;
    /// All texts, in order.
    fn messages<'r>(&self, request: &'r Request) -> Vec<MessageText<'r>>;
    /// Inline files of user messages.
    fn attachments(&self, request: &Request) -> Vec<Attachment>;
    /// Skills that are attached whole.
    fn inline_skills<'r>(&self, _request: &'r Request) -> Vec<InlineSkill<'r>> {
        Vec::new()
    }
    /// `messages`, `input` or `contents`.
    fn conversation_key(&self) -> &'static str;
    /// Adds the edits of an injection.
    fn apply(&self, request: &Request, injection: &Injection, edits: &mut Edits);
    /// The error of a request in which nothing can be injected, although it takes skills.
    fn refused(&self, _request: &Request, _injection: &Injection) -> Option<Fault> {
        None
    }
    /// Whether an injection adds a member for the loop's own sake, beside system text and tools: an upstream may not know it.
    fn adds_member(&self, _request: &Request, _injection: &Injection) -> bool {
        false
    }
    /// A body of round 1 without that member; `None` if the refusal does not name it.
    fn without_added(&self, _request: &Request, _body: &[u8], _refusal: &[u8]) -> Option<Vec<u8>> {
        None
    }
    /// Replaces a forced tool choice of a body that goes upstream by the free one; `None` if there is no choice in it.
    fn relax(&self, body: &[u8]) -> Option<Vec<u8>>;
}

/// Answers, and what goes back upstream for them.
pub(crate) trait AnswerDialect {
    /// The results of calls as conversation elements that follow the assistant's turn.
    fn results(&self, results: &[CallResult]) -> Vec<Bytes>;
    /// The body of the next round: the one of this round, with the turn and the results at its end.
    fn next_body(&self, body: &Bytes, turn: &[Bytes], results: &[Bytes]) -> Bytes;
    /// A body whose refusal names a call that is open in a conversation that the upstream keeps, with this text as its
    /// result; `None` if that is not what the refusal says, or the request is in no such conversation.
    fn answer_open(&self, _body: &[u8], _refusal: &[u8], _text: &str) -> Option<Vec<u8>> {
        None
    }
    /// The error for a body that goes on from a response by its id, if the refusal names a call that is open in that
    /// response: the results of its loop are not known here. `None` if that is not what the refusal says.
    fn lost_state(&self, _body: &[u8], _refusal: &[u8]) -> Option<Fault> {
        None
    }
    /// The objects of an assistant's turn that have the names of its calls in a member `name`.
    fn named_calls(&self, src: &[u8], turn: Span) -> Vec<Span>;
    /// A new response of this request.
    fn codec(&self, request: &Request, options: CodecOptions) -> Box<dyn Codec>;
    /// A whole error body.
    fn error_body(&self, fault: &Fault) -> Vec<u8>;
    /// A stream error frame.
    fn error_frame(&self, fault: &Fault) -> Vec<u8>;
    /// An upstream error body as a stream error frame; one that has no error of the format in it becomes one of Knack's, of the
    /// request with this name.
    fn upstream_error_frame(&self, status: u16, body: &[u8], request_id: Option<&str>) -> Vec<u8>;
    /// The bytes that keep an idle stream open.
    fn keep_alive(&self) -> &'static [u8];
}

/// How many answers a request asks for; 1 if it does not say. What is no whole number counts as many, since some providers read a
/// text or a fraction as the number that is meant.
pub(crate) fn candidates(src: &[u8], said: Option<Span>) -> u64 {
    let Some(said) = said.filter(|span| !json::is_null(src, *span)) else {
        return 1;
    };
    let number = std::str::from_utf8(said.of(src))
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    let is_one = number.is_some_and(|number| (number - 1.0).abs() < f64::EPSILON);
    json::uint(src, said).unwrap_or(if is_one { 1 } else { u64::MAX })
}

/// The options of a codec, known from the start.
#[derive(Debug, Clone, Default)]
pub(crate) struct CodecOptions {
    /// The member `container` of the response, as JSON, if Knack gives it.
    pub container: Option<String>,
    /// Generated files go into `_litellm_generated_files`.
    pub litellm: bool,
    /// The tool whose runs are shown in the native form, where only runs are (Responses, Gemini).
    pub run_tool: Option<String>,
}

/// One piece of a frame, as far as the loop needs it. The codec has its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FramePart {
    /// The round's start. Rendered for round 1 only.
    Start,
    /// A unit opens; its first bytes are in the same part.
    Unit {
        /// Number of the unit within this round; never used twice in a round.
        id: u32,
        /// The kind of the unit.
        kind: UnitKind,
    },
    /// More of an open unit.
    UnitBytes {
        /// The unit.
        id: u32,
    },
    /// A unit closes.
    UnitEnd {
        /// The unit.
        id: u32,
    },
    /// A usage object. The codec has stored it; it is rendered by [`Codec::finish`] only.
    Usage,
    /// The turn ends. The codec has stored it; it is rendered by [`Codec::finish`] only.
    Stop {
        /// True if calls of this turn are complete and may run.
        runnable: bool,
    },
    /// The end marker of the stream.
    End,
    /// The upstream reports an error inside the stream; the frame goes to the client as the end of it all.
    Error,
    /// Anything else: passes through.
    Other,
}

impl FramePart {
    /// The unit that it belongs to.
    pub(crate) const fn unit(&self) -> Option<u32> {
        match self {
            Self::Unit { id, .. } | Self::UnitBytes { id } | Self::UnitEnd { id } => Some(*id),
            _ => None,
        }
    }
}

/// The kind of a unit, as far as showing it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitKind {
    /// Answer text: held if the client asked for structured output.
    Text,
    /// A function call; [`Codec::call`] has the details.
    Call,
    /// Held until the next unit opens, then shown or hidden with it (Responses `reasoning`).
    Paired,
    /// Thinking, refusal, hosted tools, unknown: live.
    Live,
}

/// A frame and its pieces. Frames of a stream, or a whole body.
#[derive(Debug, Clone)]
pub(crate) struct DecodedFrame {
    /// The data of the frame (one JSON value).
    pub raw: Bytes,
    /// The pieces in order.
    pub parts: Vec<FramePart>,
    /// The codec's own notes on the frame.
    pub layout: Layout,
}

/// A codec's own notes on a frame.
#[derive(Debug, Clone)]
pub(crate) enum Layout {
    /// None.
    None,
    /// The layout of a Chat chunk or body. A frame that ends an answer is kept beside the one that is handed on.
    Chat(Arc<chat::ChatLayout>),
    /// The layout of a Messages event.
    Messages(messages::MessagesLayout),
}

/// A call of the current turn, as far as it has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallSoFar<'c> {
    /// The name so far.
    pub name: &'c str,
    /// True if the name will not grow any more.
    pub named: bool,
    /// The provider's id.
    pub id: &'c str,
}

/// How the answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As the last turn ended.
    AsCame,
    /// With calls of the client only; Knack's of the same turn were answered and hidden.
    ClientCalls,
    /// The limit of skill rounds was reached.
    Limit,
}

/// The upstream sent something that the format cannot mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Garbage(pub String);

/// One response being rewritten: decodes what upstream sends, gathers each turn so that it can be echoed whole, and
/// writes what the client gets. In body mode nothing is written before [`Codec::finish`].
pub(crate) trait Codec: Debug + Send {
    /// The body of round 1 is this one.
    fn sent(&mut self, _request: &Request, _body: &Bytes) {}
    /// A new round begins: what was gathered of the turn is dropped, sums and shown ids stay.
    fn begin_round(&mut self);
    /// Takes in one event of a stream.
    fn frame(&mut self, event: SseEvent) -> Result<DecodedFrame, Garbage>;
    /// Takes in a whole body.
    fn body(&mut self, body: Bytes) -> Result<DecodedFrame, Garbage>;
    /// A call of the current turn.
    fn call(&self, unit: u32) -> Option<CallSoFar<'_>>;
    /// Whether the upstream has answered a call of the current turn itself, so that the client does not.
    fn is_answered(&self, _unit: u32) -> bool {
        false
    }
    /// What called, as JSON, if a call says it.
    fn caller(&self, _unit: u32) -> Option<String> {
        None
    }
    /// The arguments of a call so far: text of a JSON object, or `""`.
    fn arguments(&self, unit: u32) -> String;
    /// Writes those parts of a frame that `shown` marks (one flag per part). Body mode: keeps them for the end.
    fn show(&mut self, frame: &DecodedFrame, shown: &[bool], out: &mut Vec<u8>);
    /// As [`Codec::show`] for frames of one text that were held: the text goes out in one piece.
    fn show_text(&mut self, frames: &[(DecodedFrame, Vec<bool>)], out: &mut Vec<u8>) {
        for (frame, shown) in frames {
            self.show(frame, shown, out);
        }
    }
    /// Gives an error frame its number behind the events that were shown, where the format numbers them.
    fn number_error(&mut self, frame: Vec<u8>) -> Vec<u8> {
        frame
    }
    /// Shows Knack's calls in the native form (only if the settings ask for it).
    fn show_calls(&mut self, units: &[u32], out: &mut Vec<u8>);
    /// Shows Knack's results in the native form (only if the settings ask for it).
    fn show_results(&mut self, results: &[CallResult], out: &mut Vec<u8>);
    /// The assistant's turn, whole, as conversation elements; none for a turn that says nothing or thinks only, which a
    /// provider refuses in a conversation.
    fn turn(&self) -> Vec<Bytes>;
    /// Bytes gathered of the turn so far.
    fn gathered(&self) -> usize;
    /// The end: stop, summed usage, end marker; in body mode the whole body.
    fn finish(&mut self, ending: Ending, files: &[GeneratedFile], out: &mut Vec<u8>);
    /// The assistant message(s) as the client has seen them, in the form in which it sends them back.
    fn visible(&self) -> Vec<Bytes>;
    /// The id of the response that the client sees.
    fn response_id(&self) -> &str;
    /// The id under which the upstream keeps the state after the running round, if a client may go on from it or read it
    /// by an id.
    fn state_id(&self) -> &str;
    /// How the client is to see what the upstream keeps of this answer; `None`: it keeps nothing that is read by an id.
    /// Without an ending the answer broke off.
    fn stored(&self, _ending: Option<Ending>) -> Option<StoredForm> {
        None
    }
    /// Ids of the client's calls that were shown.
    fn shown_calls(&self) -> &[String];
    /// The summed usage object as JSON, for metrics.
    fn usage(&self) -> Option<Vec<u8>>;
}
