//! A body without any member: what is injected makes it one with several, parted by commas. Found by fuzzing.

use bytes::Bytes;
use knack_wire::json::{self, Edits};
use knack_wire::{CallKind, Format, Injection, ModelRoute, Request, Tool};

#[test]
fn an_empty_object_takes_every_injection() {
    let tool = Tool {
        name: "skill_run".to_owned(),
        description: "d".to_owned(),
        schema: r#"{"type":"object"}"#.to_owned(),
    };
    let injection = Injection::new("# Skills".to_owned(), vec![tool]);
    for format in [Format::Chat, Format::Messages, Format::Responses, Format::Gemini] {
        for body in ["{}", " { } ", "{\n}"] {
            let route = ModelRoute::new(format, CallKind::Generate);
            let request = Request::parse(route, Bytes::from_static(body.as_bytes())).unwrap();
            let sent = request.apply(&injection, Edits::new());
            assert!(
                json::document(&sent).is_ok(),
                "{format:?} {body:?}: {}",
                String::from_utf8_lossy(&sent)
            );
        }
    }
}
