//! Which step answers a request, and whether the request is what the step expects. Pure.

use super::received::Received;
use super::script::{Conditions, Script, Step};

/// Longest piece of a text that an error message repeats, in bytes: enough to see what is wrong, short enough to read.
const SHOWN_BYTES: usize = 400;

/// Finds the step for a request: the first turn whose `user` holds, then the first step whose `when` holds, else the
/// step without `when` at the index of the round. Returns the step and its key `turn.step`.
///
/// Errors: a text that says what was expected and what came.
pub(super) fn select<'a>(script: &'a Script, received: &Received) -> Result<(&'a Step, String), String> {
    let Some((turn_index, turn)) = script
        .turns
        .iter()
        .enumerate()
        .find(|(_, turn)| turn.user.0.iter().all(|matcher| matcher.holds_for_text(&received.user)))
    else {
        return Err(format!(
            "no turn of the script matches the user text {}",
            shown(&received.user)
        ));
    };
    let key = |step_index: usize| format!("turns[{turn_index}].rounds[{step_index}]");
    let chosen = turn
        .rounds
        .iter()
        .enumerate()
        .find(|(_, step)| step.when.as_ref().is_some_and(|when| unmet(when, received).is_none()));
    if let Some((index, step)) = chosen {
        return Ok((step, key(index)));
    }
    let by_place: Vec<(usize, &Step)> = turn
        .rounds
        .iter()
        .enumerate()
        .filter(|(_, step)| step.when.is_none())
        .collect();
    let last = if turn.repeat_last { by_place.last() } else { None };
    by_place
        .get(received.round)
        .or(last)
        .map(|(index, step)| (*step, key(*index)))
        .ok_or_else(|| {
            format!(
                "turns[{turn_index}] has no step for round {} ({} results since the user text {})",
                received.round,
                received.results.len(),
                shown(&received.user)
            )
        })
}

/// Reports the first condition that does not hold: the expected and the received value.
pub(super) fn unmet(conditions: &Conditions, received: &Received) -> Option<String> {
    unmet_numbers(conditions, received)
        .or_else(|| unmet_texts(conditions, received))
        .or_else(|| unmet_lists(conditions, received))
}

fn unmet_numbers(conditions: &Conditions, received: &Received) -> Option<String> {
    if let Some(format) = conditions.format.filter(|format| *format != received.format) {
        return Some(format!("expected format {format:?}, came {:?}", received.format));
    }
    if let Some(stream) = conditions.stream.filter(|stream| *stream != received.stream) {
        return Some(format!("expected stream {stream}, came {}", received.stream));
    }
    for (what, expected, came) in [
        ("round", conditions.round, received.round),
        ("results", conditions.results, received.results.len()),
        ("messages", conditions.messages, received.message_count),
    ] {
        if let Some(expected) = expected.filter(|expected| *expected != came) {
            return Some(format!("expected {what} {expected}, came {came}"));
        }
    }
    None
}

fn unmet_texts(conditions: &Conditions, received: &Received) -> Option<String> {
    for (what, wanted, unwanted, text) in [
        ("user text", Some(&conditions.user), None, &received.user),
        (
            "system text",
            Some(&conditions.system),
            Some(&conditions.no_system),
            &received.system,
        ),
        (
            "body",
            Some(&conditions.body),
            Some(&conditions.no_body),
            &received.body,
        ),
    ] {
        for matcher in wanted.into_iter().flat_map(|matches| &matches.0) {
            if !matcher.holds_for_text(text) {
                return Some(format!("expected in the {what} {matcher}, came {}", shown(text)));
            }
        }
        for matcher in unwanted.into_iter().flat_map(|matches| &matches.0) {
            if matcher.holds_for_text(text) {
                return Some(format!("expected the {what} without {matcher}, came {}", shown(text)));
            }
        }
    }
    for (name, matches) in &conditions.header {
        let value = received.header(name);
        if let Some(matcher) = matches.0.iter().find(|matcher| !matcher.holds_for_name(value)) {
            return Some(format!("expected header {name} {matcher}, came {}", shown(value)));
        }
    }
    None
}

fn unmet_lists(conditions: &Conditions, received: &Received) -> Option<String> {
    let tools = || {
        if received.tools.is_empty() {
            "none".to_owned()
        } else {
            received.tools.join(", ")
        }
    };
    if let Some(matcher) = conditions
        .tool
        .0
        .iter()
        .find(|matcher| !received.tools.iter().any(|name| matcher.holds_for_name(name)))
    {
        return Some(format!("expected a tool named {matcher}, came: {}", tools()));
    }
    if let Some(matcher) = conditions
        .no_tool
        .0
        .iter()
        .find(|matcher| received.tools.iter().any(|name| matcher.holds_for_name(name)))
    {
        return Some(format!("expected no tool named {matcher}, came: {}", tools()));
    }
    for (what, matches, texts) in [
        ("tool result", &conditions.result, &received.results),
        ("message", &conditions.history, &received.history),
    ] {
        if let Some(matcher) = matches
            .0
            .iter()
            .find(|matcher| !texts.iter().any(|text| matcher.holds_for_text(text)))
        {
            return Some(format!(
                "expected a {what} with {matcher}, came {}",
                shown(&texts.join("\n--\n"))
            ));
        }
    }
    conditions
        .no_result
        .0
        .iter()
        .find(|matcher| received.results.iter().any(|text| matcher.holds_for_text(text)))
        .map(|matcher| {
            format!(
                "expected no tool result with {matcher}, came {}",
                shown(&received.results.join("\n--\n"))
            )
        })
}

/// A text in quotes, cut where it is too long for a message.
fn shown(text: &str) -> String {
    if text.len() <= SHOWN_BYTES {
        return format!("{text:?}");
    }
    let cut = text.floor_char_boundary(SHOWN_BYTES);
    format!("{:?} and {} bytes more", &text[..cut], text.len() - cut)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::script::FormatName;

    fn received(body: &Value) -> Received {
        Received::read(
            FormatName::Chat,
            body,
            body.to_string().as_bytes(),
            vec![("x-team".to_owned(), "blue".to_owned())],
        )
    }

    fn after_one_round() -> Received {
        received(&json!({"model": "m", "messages": [
            {"role": "system", "content": "# Skills\nUse them."}, {"role": "user", "content": "make a gif"},
            {"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "exit 0"}
        ], "tools": [{"type": "function", "function": {"name": "load_skill"}}]}))
    }

    fn unmet_of(yaml: &str) -> Option<String> {
        unmet(&serde_saphyr::from_str::<Conditions>(yaml).unwrap(), &after_one_round())
    }

    #[test]
    fn conditions_that_hold_are_silent() {
        for yaml in [
            "format: chat",
            "stream: false",
            "{round: 1, results: 1, messages: 4}",
            "user: gif",
            "system: {line: '# Skills'}",
            "no_system: secret",
            "tool: load_skill",
            "tool: {regex: skill}",
            "no_tool: run_code",
            "result: exit 0",
            "no_result: exit 1",
            "history: [make a gif, exit 0]",
            "body: '\"role\":\"tool\"'",
            "no_body: knack",
            "header: {x-team: blue, x-none: ''}",
            "{}",
        ] {
            assert_eq!(unmet_of(yaml), None, "{yaml}");
        }
    }

    #[test]
    fn each_condition_reports_the_expected_and_the_received_value() {
        for (yaml, expected, came) in [
            ("format: messages", "Messages", "Chat"),
            ("stream: true", "stream true", "came false"),
            ("round: 2", "round 2", "came 1"),
            ("results: 0", "results 0", "came 1"),
            ("messages: 3", "messages 3", "came 4"),
            ("user: png", "user text \"png\"", "make a gif"),
            ("system: {line: Skills}", "the line \"Skills\"", "Use them."),
            ("no_system: Use", "without \"Use\"", "Use them."),
            ("tool: run_code", "a tool named \"run_code\"", "load_skill"),
            ("no_tool: {suffix: skill}", "no tool named", "load_skill"),
            ("result: exit 1", "tool result with \"exit 1\"", "exit 0"),
            ("no_result: exit 0", "no tool result", "exit 0"),
            ("history: png", "message with \"png\"", "make a gif"),
            ("body: zebra", "body \"zebra\"", "gif"),
            ("no_body: gif", "body without \"gif\"", "gif"),
            ("header: {x-team: red}", "x-team \"red\"", "blue"),
        ] {
            let text = unmet_of(yaml).unwrap_or_else(|| panic!("{yaml} held"));
            assert!(text.contains(expected) && text.contains(came), "{yaml}: {text}");
        }
    }

    fn step_of(yaml: &str, body: &Value) -> Result<String, String> {
        let script = Script::parse(yaml).map_err(|error| error.to_string())?;
        select(&script, &received(body)).map(|(_, key)| key)
    }

    fn body(user: &str, rounds: usize) -> Value {
        let mut messages = vec![json!({"role": "user", "content": user})];
        for _ in 0..rounds {
            messages.push(json!({"role": "assistant", "content": "a"}));
        }
        json!({"messages": messages})
    }

    #[test]
    fn the_turn_is_chosen_by_the_user_text_and_the_step_by_the_round() {
        let script = "turns:\n- user: gif\n  rounds: [{}, {}]\n- user: csv\n  repeat_last: true\n  rounds: [{}]\n";
        assert_eq!(step_of(script, &body("a gif", 0)).unwrap(), "turns[0].rounds[0]");
        assert_eq!(step_of(script, &body("a gif", 1)).unwrap(), "turns[0].rounds[1]");
        assert_eq!(step_of(script, &body("a csv", 7)).unwrap(), "turns[1].rounds[0]");
        assert!(
            step_of(script, &body("a gif", 2))
                .unwrap_err()
                .contains("no step for round 2")
        );
        assert!(step_of(script, &body("a png", 0)).unwrap_err().contains("\"a png\""));
    }

    #[test]
    fn a_step_whose_when_holds_goes_before_the_place() {
        let script = "turns:\n- rounds: [{}, {when: {user: csv}}, {}]\n";
        assert_eq!(step_of(script, &body("gif", 1)).unwrap(), "turns[0].rounds[2]");
        assert_eq!(step_of(script, &body("csv", 1)).unwrap(), "turns[0].rounds[1]");
    }
}
