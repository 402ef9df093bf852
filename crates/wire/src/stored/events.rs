//! The events of a response in the background, as they pass.

use crate::frame::MAX_EVENT;
use crate::json;
use crate::stored::StoredForm;

/// Puts the responses that events carry into the client's terms. All other bytes of the stream stay as they came, the numbers
/// of the events included: by them a client goes on reading where it left off.
#[derive(Debug)]
pub struct StoredEvents {
    form: StoredForm,
    id: Option<String>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The line is too long to be held, and passes as it came.
    is_long: bool,
}

impl StoredEvents {
    /// The events of a response that is shown like this. Without an `id` it is shown under its own.
    pub const fn new(form: StoredForm, id: Option<String>) -> Self {
        Self {
            form,
            id,
            line: Vec::new(),
            is_long: false,
        }
    }

    /// The id of the response, once it is known.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// How the response is shown.
    pub const fn form(&self) -> &StoredForm {
        &self.form
    }

    /// Takes bytes of the stream and gives those that the client sees. The beginning of a line waits for its end.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, behind) = bytes.split_at(end + 1);
            self.line.extend_from_slice(line);
            self.end_line(&mut out);
            bytes = behind;
        }
        self.line.extend_from_slice(bytes);
        if self.is_long || self.line.len() > MAX_EVENT {
            self.is_long = true;
            out.append(&mut self.line);
        }
        out
    }

    /// What is left at the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.end_line(&mut out);
        out
    }

    fn end_line(&mut self, out: &mut Vec<u8>) {
        let line = std::mem::take(&mut self.line);
        let is_long = std::mem::take(&mut self.is_long);
        let rewritten = if is_long { None } else { self.rewritten(&line) };
        out.extend_from_slice(rewritten.as_ref().unwrap_or(&line));
    }

    /// The line with its response in the client's terms; `None`: it has none.
    fn rewritten(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let data = line.strip_prefix(b"data:")?;
        memchr::memmem::find(data, b"\"response\"")?;
        let document = json::document(data).ok()?;
        let response = json::get(data, document, "response")?;
        if json::get_text(data, response, "object").as_deref() != Some("response") {
            return None;
        }
        let own = json::get_text(data, response, "id")?;
        let id = self.id.get_or_insert_with(|| own.into_owned());
        let edits = self.form.named(data, response, id);
        Some([b"data:", edits.apply(data).as_slice()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "event: response.created\r\ndata: {\"sequence_number\":4,\"response\":{\"id\":\"resp_2\",\"object\":\"response\",\"previous_response_id\":\"resp_1b\"}}\r\n\r\n: ping\n\ndata: {\"delta\":\"a \\\"response\\\" resp_1b\"}\n\ndata: {\"response\":{\"object\":\"other\",\"previous_response_id\":\"resp_1b\"}}\rdata: [\"response\"\n\ndata: {\"response\":{\"object\":\"response\",\"id\":\"resp_2\",\"previous_response_id\":\"resp_1b\"}}";

    #[test]
    fn a_response_is_put_into_the_clients_terms_and_every_other_byte_passes() {
        let shown = SENT.replace(
            "\"previous_response_id\":\"resp_1b\"}}\r\n",
            "\"previous_response_id\":\"resp_1\"}}\r\n",
        );
        let cut = shown.len() - "resp_1b\"}}".len();
        let shown = format!("{}resp_1\"}}}}", &shown[..cut]);
        for size in [1, 2, 7, 64, SENT.len()] {
            let form = StoredForm::in_background(Some("\"resp_1\"".to_owned()));
            let mut events = StoredEvents::new(form, None);
            assert_eq!(events.id(), None);
            let pieces = SENT.as_bytes().chunks(size);
            let mut out: Vec<u8> = pieces.flat_map(|piece| events.push(piece)).collect();
            out.extend(events.rest());
            assert_eq!(String::from_utf8(out).unwrap(), shown, "in pieces of {size}");
            assert_eq!(events.id(), Some("resp_2"));
        }
    }

    #[test]
    fn a_line_that_is_too_long_to_be_held_passes() {
        let mut events = StoredEvents::new(StoredForm::in_background(Some("1".to_owned())), None);
        let long = format!("data: {{\"response\":\"{}\"}}\n", "x".repeat(MAX_EVENT));
        let behind = "data: {\"response\":{\"id\":\"r\",\"object\":\"response\",\"previous_response_id\":2}}\n";
        let sent = format!("{long}{behind}");
        let mut out = Vec::new();
        for piece in sent.as_bytes().chunks(1 << 20) {
            out.extend(events.push(piece));
            assert!(events.line.len() <= MAX_EVENT);
        }
        assert!(out == format!("{long}{}", behind.replace(":2}", ":1}")).as_bytes());
    }
}
