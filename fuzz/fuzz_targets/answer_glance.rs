//! What telemetry reads of an answer: the same however the bytes are cut, and never long.
#![no_main]

use knack_wire::Format;
use knack_wire::glance::{self, AnswerFacts, Glance};
use libfuzzer_sys::fuzz_target;

fn read(format: Format, stream: bool, body: &[u8], size: usize) -> AnswerFacts {
    let mut glance = Glance::new(format, stream);
    for piece in body.chunks(size) {
        glance.push(piece);
    }
    glance.finish()
}

fuzz_target!(|data: &[u8]| {
    let [choice, size, body @ ..] = data else { return };
    let format = match choice & 3 {
        0 => Format::Chat,
        1 => Format::Messages,
        2 => Format::Responses,
        _ => Format::Gemini,
    };
    let stream = choice & 4 != 0;
    let facts = read(format, stream, body, usize::from(*size).max(1));
    assert_eq!(facts, read(format, stream, body, body.len().max(1)));
    let texts = [&facts.id, &facts.model, &facts.error].into_iter().flatten();
    assert!(texts.chain(&facts.finish_reasons).all(|text| text.len() <= 256));
    assert!(facts.finish_reasons.len() <= 16);
    let asked = glance::request(format, body);
    assert!(asked.temperature.is_none_or(f64::is_finite));
});
