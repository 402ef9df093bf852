//! A format that is not spoken: nothing is injected, its answers are not looked into.

use bytes::Bytes;

use super::{CallSoFar, Codec, CodecOptions, Decoded, Dialect, Ending, Garbage, openai_error};
use crate::drive::{CallResult, GeneratedFile};
use crate::fault::Fault;
use crate::frame::{SseEvent, push_data};
use crate::json::{Edits, Span};
use crate::request::{Attachment, Injection, MessageText, Request, View};

/// See the module.
pub(crate) struct Opaque;

impl Dialect for Opaque {
    fn view(&self, _: &Request) -> Result<View, Fault> {
        Ok(View {
            closed: Some("this format is proxied without injection"),
            candidates: 1,
            ..View::default()
        })
    }
    fn messages<'r>(&self, _: &'r Request) -> Vec<MessageText<'r>> {
        Vec::new()
    }
    fn attachments(&self, _: &Request) -> Vec<Attachment> {
        Vec::new()
    }
    fn conversation_key(&self) -> &'static str {
        "messages"
    }
    fn apply(&self, _: &Request, _: &Injection, _: &mut Edits) {}
    fn relax(&self, body: &[u8], _: Span) -> Vec<u8> {
        body.to_vec()
    }
    fn results(&self, _: &[CallResult]) -> Vec<Bytes> {
        Vec::new()
    }
    fn codec(&self, _: &Request, _: CodecOptions) -> Box<dyn Codec> {
        Box::new(OpaqueCodec)
    }
    fn error_body(&self, fault: &Fault) -> Vec<u8> {
        openai_error::body(fault)
    }
    fn error_frame(&self, fault: &Fault) -> Vec<u8> {
        let mut out = Vec::new();
        push_data(&mut out, &openai_error::body(fault));
        out
    }
    fn upstream_error_frame(&self, status: u16, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_data(&mut out, &openai_error::from_upstream(status, body));
        out
    }
    fn keep_alive(&self) -> &'static [u8] {
        b": keepalive\n\n"
    }
}

#[derive(Debug)]
struct OpaqueCodec;

impl Codec for OpaqueCodec {
    fn begin_round(&mut self) {}
    fn frame(&mut self, _: SseEvent) -> Result<Decoded, Garbage> {
        Err(Garbage("this format is not spoken".to_owned()))
    }
    fn body(&mut self, _: Bytes) -> Result<Decoded, Garbage> {
        Err(Garbage("this format is not spoken".to_owned()))
    }
    fn call(&self, _: u32) -> Option<CallSoFar<'_>> {
        None
    }
    fn arguments(&self, _: u32) -> String {
        String::new()
    }
    fn show(&mut self, _: &Decoded, _: &[bool], _: &mut Vec<u8>) {}
    fn show_calls(&mut self, _: &[u32], _: &mut Vec<u8>) {}
    fn show_results(&mut self, _: &[CallResult], _: &mut Vec<u8>) {}
    fn turn(&self) -> Vec<Bytes> {
        Vec::new()
    }
    fn gathered(&self) -> usize {
        0
    }
    fn finish(&mut self, _: Ending, _: &[GeneratedFile], _: &mut Vec<u8>) {}
    fn visible(&self) -> Vec<Bytes> {
        Vec::new()
    }
    fn response_id(&self) -> &'static str {
        ""
    }
    fn shown_calls(&self) -> &[String] {
        &[]
    }
    fn usage(&self) -> Option<Vec<u8>> {
        None
    }
}
