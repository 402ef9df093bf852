use serde_json::json;

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn call(round: u32, token: u32, name: &str) -> ToolCall {
    ToolCall {
        token,
        round,
        name: name.to_owned(),
        id: format!("call_{token}"),
        arguments: "{\"code\": \"print('plover')\"}".to_owned(),
    }
}

const fn id(round: u32, token: u32) -> CallId {
    CallId { round, token }
}

fn note(call: CallId, status: &'static str) -> ExecutionNote {
    ExecutionNote {
        id: "e1".to_owned(),
        call,
        skill: "team/pdf".to_owned(),
        status,
        start: "cold",
        queued: Some(ms(2)),
        program: Some(ms(30)),
        duration: ms(400),
    }
}

fn loaded(call: CallId) -> SkillUse {
    SkillUse {
        skill: "team/pdf".to_owned(),
        what: SkillUseKind::Loaded,
        tokens: 9,
        call: Some(call),
    }
}

#[test]
fn rounds_and_calls_have_their_times_skills_and_runs() {
    let mut timeline = Timeline::default();
    timeline.sent(1, ms(3));
    timeline.head(200, ms(103));
    timeline.bytes(ms(113));
    timeline.bytes(ms(203));
    timeline.called(&call(1, 0, "load_skill"), ms(210));
    timeline.called(&call(1, 1, "run_code"), ms(211));
    timeline.answered(0, false, ms(212));
    timeline.answered(1, true, ms(611));
    timeline.sent(2, ms(620));
    timeline.head(200, ms(640));
    timeline.called(&call(2, 0, "load_skill"), ms(650));
    timeline.answered(0, true, ms(651));
    timeline.sent(3, ms(660));
    timeline.over(Some("connect"), ms(700));
    timeline.sent(3, ms(900));
    let (steps, left_out) = timeline.finish(&[loaded(id(1, 0))], &[note(id(1, 1), "error")], ms(950));
    assert_eq!(left_out, 0);
    let run = json!({"id": "e1", "status": "error", "start": "cold", "queuedMs": 2, "programMs": 30});
    assert_eq!(
        serde_json::to_value(steps).unwrap(),
        json!([
            {"step": "round", "round": 1, "begunMs": 3, "tookMs": 200, "firstByteMs": 110, "status": 200, "failure": null, "ended": true},
            {"step": "call", "round": 1, "tool": "load_skill", "begunMs": 210, "tookMs": 2, "skill": "team/pdf", "failed": false, "run": null},
            {"step": "call", "round": 1, "tool": "run_code", "begunMs": 211, "tookMs": 400, "skill": "team/pdf", "failed": true, "run": run},
            {"step": "round", "round": 2, "begunMs": 620, "tookMs": 20, "firstByteMs": null, "status": 200, "failure": null, "ended": true},
            {"step": "call", "round": 2, "tool": "load_skill", "begunMs": 650, "tookMs": 1, "skill": null, "failed": true, "run": null},
            {"step": "round", "round": 3, "begunMs": 660, "tookMs": 40, "firstByteMs": null, "status": null, "failure": "connect", "ended": true},
            {"step": "round", "round": 3, "begunMs": 900, "tookMs": 50, "firstByteMs": null, "status": null, "failure": null, "ended": false},
        ])
    );
}

#[test]
fn what_a_client_that_left_did_not_wait_for_has_no_result() {
    let mut timeline = Timeline::default();
    timeline.called(&call(1, 7, "run_code"), ms(10));
    let (steps, _) = timeline.finish(&[], &[], ms(60));
    assert!(
        matches!(
            steps[..],
            [Step::Call {
                took_ms: 50,
                failed: None,
                run: None,
                ..
            }]
        ),
        "{steps:?}"
    );
}

/// The time of a provider that is too late is the time that was waited, whether its answer has begun or not.
#[test]
fn a_round_that_a_timeout_ended_took_until_then() {
    for heard in [false, true] {
        let mut timeline = Timeline::default();
        timeline.sent(1, ms(2));
        if heard {
            timeline.head(200, ms(3));
        }
        timeline.over(Some("timeout"), ms(1802));
        let (steps, _) = timeline.finish(&[], &[], ms(1803));
        let Step::Round {
            took_ms,
            failure,
            ended,
            ..
        } = &steps[0]
        else {
            panic!("{steps:?}");
        };
        assert_eq!((*took_ms, failure.as_deref(), *ended), (1800, Some("timeout"), true));
    }
}

/// The provider answered; the run that it asked for is what its client did not wait for.
#[test]
fn a_round_that_is_over_keeps_its_time_when_the_client_leaves() {
    let mut timeline = Timeline::default();
    timeline.sent(1, ms(0));
    timeline.head(200, ms(5));
    timeline.bytes(ms(6));
    timeline.over(None, ms(7));
    timeline.called(&call(1, 1, "run_code"), ms(7));
    let (steps, _) = timeline.finish(&[], &[note(id(1, 1), "cancelled")], ms(800));
    assert!(
        matches!(&steps[..], [Step::Round { took_ms: 6, ended: true, failure: None, .. },
            Step::Call { took_ms: 793, failed: None, run: Some(run), .. }] if run.id == "e1" && run.status == "cancelled"),
        "{steps:?}"
    );
}

#[test]
fn steps_without_end_are_counted_and_not_kept() {
    let mut timeline = Timeline::default();
    for number in 0..3 * STEPS_MAX {
        timeline.sent(u32::try_from(number).unwrap(), ms(1));
        timeline.head(200, ms(1));
    }
    let (steps, left_out) = timeline.finish(&[], &[], ms(2));
    assert_eq!((steps.len(), left_out), (STEPS_MAX, 2 * STEPS_MAX));
}
