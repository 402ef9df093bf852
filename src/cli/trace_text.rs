//! Requests as text for a person. Names in it are chosen by clients and models: each line is escaped here, so that none begins another.

use std::fmt::Write as _;

use knack_gateway::telemetry::request_report::RequestReport;
use knack_gateway::telemetry::timeline::{Run, Step};

use super::terminal;

/// One request: a line for what it is, then its steps in the order of their begins.
pub(super) fn page(report: &RequestReport) -> String {
    let mut out = format!(
        "{}  {:.3}  {} ms\n{}\n",
        terminal::name(&report.request_id),
        report.begun,
        report.took_ms,
        terminal::name(&head(report))
    );
    let mut fact = |name: &str, text: &str| {
        let _ = writeln!(out, "  {name:<9} {}", terminal::name(text));
    };
    fact("skills", &skills(report));
    if report.added_tokens > 0 {
        fact("added", &format!("{} tokens (estimated)", report.added_tokens));
    }
    if !report.revision.is_empty() {
        fact("catalog", &format!("revision {}", report.revision));
    }
    for note in &report.notes {
        fact("note", note);
    }
    fact("end", report.end.as_deref().unwrap_or("answer"));
    if report.files > 0 {
        fact("files", &format!("{} made", report.files));
    }
    if !report.steps.is_empty() {
        out.push_str("\n      at ms    took ms\n");
    }
    for step in &report.steps {
        let (begun, took, text) = line(step);
        let _ = writeln!(out, "  {begun:>9}  {took:>9}  {}", terminal::name(&text));
    }
    if report.steps_left_out > 0 {
        let _ = writeln!(
            out,
            "  and {} further steps, which were not kept",
            report.steps_left_out
        );
    }
    out
}

/// Requests, one line each.
pub(super) fn list(reports: &[RequestReport]) -> String {
    let mut out = String::new();
    for report in reports {
        let rounds = report
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Round { .. }))
            .count();
        let runs = report
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Call { run: Some(_), .. }))
            .count();
        let _ = writeln!(
            out,
            "{}  {:.3}  {} | skills: {} | {} | {} | {} ms",
            terminal::name(&report.request_id),
            report.begun,
            terminal::name(&head(report)),
            terminal::name(&skills(report)),
            counted(rounds, "round"),
            counted(runs, "run"),
            report.took_ms
        );
    }
    out
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn head(report: &RequestReport) -> String {
    let model = if report.model.is_empty() { "-" } else { &report.model };
    let stream = if report.stream { " stream" } else { "" };
    format!("{} {} {model}{stream}", report.status, report.format)
}

fn skills(report: &RequestReport) -> String {
    let mut text = if report.skills.is_empty() {
        "none".to_owned()
    } else {
        report.skills.join(", ")
    };
    if report.listed > 0 {
        let _ = write!(text, " + {} listed", report.listed);
    }
    text
}

/// Begin, time, and what it was.
fn line(step: &Step) -> (u64, u64, String) {
    match step {
        Step::Round {
            round,
            begun_ms,
            took_ms,
            first_byte_ms,
            status,
            failure,
            ended,
        } => {
            let mut text = format!("round {round}: ");
            match (status, failure.as_deref()) {
                (_, Some("connect")) => text.push_str("no connection to the provider"),
                (None, Some("timeout")) => text.push_str("no answer in time"),
                (Some(status), Some("timeout")) => text.push_str(&format!("provider {status}, not complete in time")),
                (_, Some(reason)) => text.push_str(&format!("the provider's answer: {reason}")),
                (Some(status), None) => text.push_str(&format!("provider {status}")),
                (None, None) => text.push_str("no answer"),
            }
            if let Some(first) = first_byte_ms {
                text.push_str(&format!(", first byte after {first} ms"));
            }
            if !ended {
                text.push_str(", not waited for");
            }
            (*begun_ms, *took_ms, text)
        }
        Step::Call {
            tool,
            begun_ms,
            took_ms,
            skill,
            failed,
            run,
            ..
        } => {
            let mut text = format!("  {tool}");
            if let Some(skill) = skill {
                text.push_str(&format!(" {skill}"));
            }
            text.push_str(": ");
            match (run, failed) {
                (Some(run), _) => text.push_str(&ran(run)),
                (None, Some(false)) => text.push_str("answered"),
                (None, Some(true)) => text.push_str("refused, with the reason in the answer to the model"),
                (None, None) => text.push_str("not waited for"),
            }
            (*begun_ms, *took_ms, text)
        }
    }
}

fn ran(run: &Run) -> String {
    let mut text = run.status.clone();
    if let Some(start) = &run.start {
        text.push_str(&format!(", {start} start"));
    }
    if let Some(queued) = run.queued_ms.filter(|queued| *queued > 0) {
        text.push_str(&format!(", waited {queued} ms for a slot"));
    }
    if let Some(program) = run.program_ms {
        text.push_str(&format!(", program {program} ms"));
    }
    text.push_str(&format!(", execution {}", run.id));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> RequestReport {
        let run = json!({"id": "019a0c1e", "status": "success", "start": "cold", "queuedMs": 12, "programMs": 41});
        serde_json::from_value(json!({
            "requestId": "0199c0de", "begun": "2026-11-23T16:20:01.5Z", "tookMs": 2310, "format": "chat", "model": "gpt-x",
            "stream": true, "status": 200, "end": null, "revision": "sha256:4f1c", "skills": ["house-style (always)"], "listed": 2,
            "addedTokens": 214, "files": 1, "notes": ["skill pdf: asks the model for its required inputs: page"], "stepsLeftOut": 0,
            "steps": [
                {"step": "round", "round": 1, "begunMs": 2, "tookMs": 20, "firstByteMs": null, "status": 429, "failure": null, "ended": true},
                {"step": "round", "round": 1, "begunMs": 522, "tookMs": 610, "firstByteMs": 420, "status": 200, "failure": null, "ended": true},
                {"step": "call", "round": 1, "tool": "load_skill", "begunMs": 1133, "tookMs": 0, "skill": "team/pdf", "failed": false, "run": null},
                {"step": "call", "round": 1, "tool": "run_code", "begunMs": 1133, "tookMs": 480, "skill": "team/pdf", "failed": false, "run": run},
                {"step": "call", "round": 1, "tool": "run_code", "begunMs": 1133, "tookMs": 1, "skill": null, "failed": true, "run": null},
                {"step": "round", "round": 2, "begunMs": 1615, "tookMs": 695, "firstByteMs": 300, "status": 200, "failure": null, "ended": true},
            ]
        }))
        .unwrap()
    }

    #[test]
    fn a_request_with_everything() {
        assert_eq!(
            page(&report()),
            "0199c0de  2026-11-23T16:20:01.500Z  2310 ms
200 chat gpt-x stream
  skills    house-style (always) + 2 listed
  added     214 tokens (estimated)
  catalog   revision sha256:4f1c
  note      skill pdf: asks the model for its required inputs: page
  end       answer
  files     1 made

      at ms    took ms
          2         20  round 1: provider 429
        522        610  round 1: provider 200, first byte after 420 ms
       1133          0    load_skill team/pdf: answered
       1133        480    run_code team/pdf: success, cold start, waited 12 ms for a slot, program 41 ms, execution 019a0c1e
       1133          1    run_code: refused, with the reason in the answer to the model
       1615        695  round 2: provider 200, first byte after 300 ms
"
        );
    }

    #[test]
    fn what_clients_and_models_name_begins_no_line() {
        let forged = "x\n  end       answer\u{1b}[2J\u{2028}";
        let mut report = report();
        report.request_id = forged.to_owned();
        report.model = forged.to_owned();
        report.format = forged.to_owned().into();
        report.skills = vec![forged.to_owned()];
        report.notes = vec![forged.to_owned()];
        report.revision = forged.to_owned();
        report.end = Some(forged.to_owned());
        for step in &mut report.steps {
            match step {
                Step::Round { failure, .. } => *failure = Some(forged.to_owned()),
                Step::Call { tool, skill, run, .. } => {
                    forged.clone_into(tool);
                    *skill = Some(forged.to_owned());
                    if let Some(run) = run {
                        (run.id, run.status, run.start) =
                            (forged.to_owned(), forged.to_owned(), Some(forged.to_owned()));
                    }
                }
            }
        }
        let lines = 2 + 6 + 2 + report.steps.len();
        for (text, expected) in [(page(&report), lines), (list(&[report]), 1)] {
            assert_eq!(text.lines().count(), expected, "{text}");
            assert!(!text.contains(['\u{1b}', '\u{2028}']), "{text}");
        }
    }

    #[test]
    fn a_request_that_a_client_left_and_one_that_was_refused() {
        let mut left = report();
        left.steps = serde_json::from_value(json!([
            {"step": "round", "round": 1, "begunMs": 1, "tookMs": 9, "firstByteMs": null, "status": null, "failure": "connect", "ended": true},
            {"step": "round", "round": 1, "begunMs": 99, "tookMs": 7, "firstByteMs": 3, "status": 200, "failure": "broken", "ended": true},
            {"step": "call", "round": 1, "tool": "run_code", "begunMs": 120, "tookMs": 80, "skill": null, "failed": null, "run": null},
            {"step": "call", "round": 1, "tool": "run_code", "begunMs": 120, "tookMs": 80, "skill": null, "failed": null,
             "run": {"id": "019a0c1e", "status": "cancelled", "start": null, "queuedMs": null, "programMs": null}},
            {"step": "round", "round": 2, "begunMs": 205, "tookMs": 1800, "firstByteMs": null, "status": null, "failure": "timeout", "ended": true},
            {"step": "round", "round": 2, "begunMs": 206, "tookMs": 1800, "firstByteMs": 9, "status": 200, "failure": "timeout", "ended": true},
            {"step": "round", "round": 2, "begunMs": 210, "tookMs": 5, "firstByteMs": null, "status": null, "failure": null, "ended": false},
        ]))
        .unwrap();
        left.steps_left_out = 3;
        let text = page(&left);
        let (_, steps) = text.split_once("took ms\n").unwrap();
        assert_eq!(
            steps,
            "          1          9  round 1: no connection to the provider
         99          7  round 1: the provider's answer: broken, first byte after 3 ms
        120         80    run_code: not waited for
        120         80    run_code: cancelled, execution 019a0c1e
        205       1800  round 2: no answer in time
        206       1800  round 2: provider 200, not complete in time, first byte after 9 ms
        210          5  round 2: no answer, not waited for
  and 3 further steps, which were not kept
"
        );
        let refused = RequestReport {
            status: 400,
            model: String::new(),
            stream: false,
            end: Some("The body is not JSON.".to_owned()),
            skills: Vec::new(),
            listed: 0,
            added_tokens: 0,
            files: 0,
            notes: Vec::new(),
            revision: String::new(),
            steps: Vec::new(),
            took_ms: 1,
            ..report()
        };
        assert_eq!(
            page(&refused),
            "0199c0de  2026-11-23T16:20:01.500Z  1 ms\n400 chat -\n  skills    none\n  end       The body is not JSON.\n"
        );
        assert_eq!(
            list(&[report(), refused]),
            "0199c0de  2026-11-23T16:20:01.500Z  200 chat gpt-x stream | skills: house-style (always) + 2 listed | 3 rounds | 1 run | 2310 ms
0199c0de  2026-11-23T16:20:01.500Z  400 chat - | skills: none | 0 rounds | 0 runs | 1 ms\n"
        );
    }
}
