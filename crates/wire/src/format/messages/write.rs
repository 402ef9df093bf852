//! The gateway's own parts of a Messages answer: its end, and runs in the native form.

use bytes::Bytes;

use super::codec::MessagesCodec;
use crate::drive::{CallResult, GeneratedFile};
use crate::format::{Ending, splice};
use crate::frame::push_event;
use crate::json::{self, Edits, Member, Span, ValueKind};

/// Ids of Knack's native blocks begin with this; they are recognised by it when the client sends them back.
const OWN_USE: &str = "srvtoolu_knack_";

/// The stop reason of an ending; `None` leaves upstream's.
const fn reason(ending: Ending) -> Option<&'static str> {
    match ending {
        Ending::AsCame => None,
        Ending::ClientCalls => Some("\"tool_use\""),
        Ending::Limit => Some("\"pause_turn\""),
    }
}

impl MessagesCodec {
    pub(super) fn finish_stream(&mut self, ending: Ending, out: &mut Vec<u8>) {
        let made_up = Bytes::from_static(
            b"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":0}}",
        );
        let raw = self.turn.delta.take().unwrap_or(made_up);
        let mut edits = Edits::new();
        let top = json::object(&raw).unwrap_or_default();
        if let Some(delta) = json::member(&raw, &top, "delta") {
            let members = json::members(&raw, delta.value).unwrap_or_default();
            set_value(&raw, &members, delta.value, "stop_reason", reason(ending), &mut edits);
            self.set_container(&raw, &members, delta.value, &mut edits);
        }
        self.set_usage(&raw, &top, &mut edits);
        push_event(out, b"message_delta", &edits.apply(&raw));
        push_event(out, b"message_stop", b"{\"type\":\"message_stop\"}");
    }

    pub(super) fn finish_body(&mut self, raw: &Bytes, ending: Ending, files: &[GeneratedFile], out: &mut Vec<u8>) {
        let mut edits = Edits::new();
        let top = json::object(raw).unwrap_or_default();
        let whole = Span::new(json::space(raw, 0), raw.len());
        if let Some(id) = json::member(raw, &top, "id")
            && json::text(raw, id.value).is_some_and(|id| id != self.id)
        {
            edits.replace(id.value, json::quoted(&self.id));
        }
        let hides = self.turn.blocks.iter().any(|block| block.shown.is_none());
        if let Some(content) = json::member(raw, &top, "content")
            && (hides || !self.shown.is_empty())
        {
            self.fold();
            edits.replace(content.value, [b"[", self.shown.join(&b',').as_slice(), b"]"].concat());
        }
        set_value(raw, &top, whole, "stop_reason", reason(ending), &mut edits);
        self.set_container(raw, &top, whole, &mut edits);
        self.set_usage(raw, &top, &mut edits);
        if self.options.litellm
            && !files.is_empty()
            && let Some(last) = top.last()
        {
            let member = [
                b",\"_litellm_generated_files\":",
                splice::litellm_files(files).as_slice(),
            ]
            .concat();
            edits.insert(last.value.end, member);
        }
        out.extend_from_slice(&edits.apply(raw));
    }

    /// Usage of several rounds is the sum; of one round it stays as it came.
    fn set_usage(&self, raw: &[u8], top: &[Member], edits: &mut Edits) {
        if self.usage.single() {
            return;
        }
        let Some(total) = self.usage.total() else { return };
        match json::member(raw, top, "usage") {
            Some(member) => edits.replace(member.value, total),
            None => edits.insert(
                json::space(raw, 0) + 1,
                [b"\"usage\":", total.as_slice(), b","].concat(),
            ),
        }
    }

    /// Knack's container, or Knack's skills in the container of the vendor.
    fn set_container(&self, raw: &[u8], members: &[Member], holder: Span, edits: &mut Edits) {
        let Some(own) = &self.options.container else { return };
        let theirs = json::member(raw, members, "container")
            .filter(|member| json::kind(raw, member.value) == Some(ValueKind::Object));
        let Some(theirs) = theirs else {
            return set_value(raw, members, holder, "container", Some(own), edits);
        };
        let own = own.as_bytes();
        let skills = json::get(own, Span::new(0, own.len()), "skills").and_then(|span| json::elements(own, span).ok());
        let skills: Vec<Vec<u8>> = skills
            .unwrap_or_default()
            .iter()
            .map(|span| span.of(own).to_vec())
            .collect();
        let inner = json::members(raw, theirs.value).unwrap_or_default();
        if let Some(list) =
            json::member(raw, &inner, "skills").filter(|member| json::kind(raw, member.value) == Some(ValueKind::Array))
        {
            splice::push_elements(raw, edits, list.value, &skills);
        } else {
            let list = [b"[", skills.join(&b","[..]).as_slice(), b"]"].concat();
            set_value(
                raw,
                &inner,
                theirs.value,
                "skills",
                std::str::from_utf8(&list).ok(),
                edits,
            );
        }
    }

    /// Knack's calls as `server_tool_use` blocks: all calls of a round first, so that rounds can be separated later.
    pub(super) fn write_calls(&mut self, units: &[u32], out: &mut Vec<u8>) {
        self.fold();
        for unit in units {
            let Some(block) = self.turn.blocks.get(*unit as usize) else {
                continue;
            };
            let input = native_input(&block.name, &block.arguments());
            let id = self.runs.of_call(OWN_USE, &self.id, self.next_index, &block.id);
            let head = format!(r#"{{"type":"server_tool_use","id":"{id}","name":"bash_code_execution","input":"#);
            self.shown
                .push([head.as_bytes(), input.as_bytes(), b"}"].concat().into());
            let index = self.take_index();
            if self.turn.body.is_some() {
                continue;
            }
            let start = format!(r#"{{"type":"content_block_start","index":{index},"content_block":{head}{{}}}}}}"#);
            push_event(out, b"content_block_start", start.as_bytes());
            let mut delta = format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"#
            )
            .into_bytes();
            json::push_string(&mut delta, &input);
            delta.extend_from_slice(b"}}");
            push_event(out, b"content_block_delta", &delta);
            push_stop(index, out);
        }
    }

    /// Knack's results as `bash_code_execution_tool_result` blocks.
    pub(super) fn write_results(&mut self, results: &[CallResult], out: &mut Vec<u8>) {
        for result in results {
            let Some(id) = self.runs.of_result() else { continue };
            let block = native_result(&id, result);
            let index = self.take_index();
            if self.turn.body.is_none() {
                let start = [
                    format!(r#"{{"type":"content_block_start","index":{index},"content_block":"#).as_bytes(),
                    block.as_slice(),
                    b"}",
                ]
                .concat();
                push_event(out, b"content_block_start", &start);
                push_stop(index, out);
            }
            self.shown.push(block.into());
        }
    }
}

/// Sets a member of the object at `holder`.
fn set_value(raw: &[u8], members: &[Member], holder: Span, key: &str, value: Option<&str>, edits: &mut Edits) {
    let Some(value) = value else { return };
    match json::member(raw, members, key) {
        Some(member) => edits.replace(member.value, value.to_owned()),
        None => match members.last() {
            Some(last) => edits.insert(last.value.end, format!(",\"{key}\":{value}")),
            None => edits.insert(holder.start + 1, format!("\"{key}\":{value}")),
        },
    }
}

fn push_stop(index: u64, out: &mut Vec<u8>) {
    push_event(
        out,
        b"content_block_stop",
        format!(r#"{{"type":"content_block_stop","index":{index}}}"#).as_bytes(),
    );
}

/// The arguments with a `command` for clients that show it; the model's own members stay.
fn native_input(name: &str, arguments: &str) -> String {
    let src = arguments.as_bytes();
    let members = json::object(src).unwrap_or_default();
    if json::member(src, &members, "command").is_some() {
        return arguments.to_owned();
    }
    let code = json::member(src, &members, "code").and_then(|member| json::text(src, member.value));
    let command = code.map_or_else(|| format!("{name} {arguments}"), std::borrow::Cow::into_owned);
    let mut out = b"{\"command\":".to_vec();
    json::push_string(&mut out, command.trim());
    for member in &members {
        out.push(b',');
        out.extend_from_slice(member.whole().of(src));
    }
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}

fn native_result(id: &str, result: &CallResult) -> Vec<u8> {
    if result.native.as_ref().is_some_and(|run| run.timed_out) {
        // The API's error for it, which has no output.
        return format!(r#"{{"type":"bash_code_execution_tool_result","tool_use_id":"{id}","content":{{"type":"bash_code_execution_tool_result_error","error_code":"execution_time_exceeded"}}}}"#).into_bytes();
    }
    let mut out = format!(r#"{{"type":"bash_code_execution_tool_result","tool_use_id":"{id}","content":{{"type":"bash_code_execution_result","stdout":"#)
        .into_bytes();
    let run = result.native_run();
    json::push_string(&mut out, &run.stdout);
    out.extend_from_slice(b",\"stderr\":");
    json::push_string(&mut out, &run.stderr);
    out.extend_from_slice(format!(",\"return_code\":{},\"content\":[", run.return_code).as_bytes());
    for (at, id) in run.file_ids.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        out.extend_from_slice(b"{\"type\":\"bash_code_execution_output\",\"file_id\":");
        json::push_string(&mut out, id);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}}");
    out
}
