use knack_wire::glance::Usage;

use super::*;

/// Attributes as `name=value` lines, in order.
fn lines(description: &Description) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Texts(texts) => format!("[{}]", texts.join(", ")),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
    };
    let names: std::collections::BTreeSet<_> = description.attributes.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), description.attributes.len(), "{description:?}");
    description
        .attributes
        .iter()
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect()
}

fn asked() -> ProviderRequest {
    ProviderRequest {
        format: Format::Messages,
        kind: CallKind::Generate,
        model: "claude-x".to_owned(),
        stream: true,
        server: Some(("api.example".to_owned(), 443)),
        request: RequestFacts {
            max_tokens: Some(1024),
            temperature: Some(0.5),
        },
        round: 2,
    }
}

fn answered() -> ProviderOutcome {
    ProviderOutcome {
        status: Some(200),
        first_chunk: Some(Duration::from_millis(250)),
        answer: AnswerFacts {
            id: Some("msg_1".to_owned()),
            model: Some("claude-x-1".to_owned()),
            finish_reasons: vec!["tool_use".to_owned()],
            error: None,
            usage: Usage {
                input: Some(125),
                output: Some(4),
                cache_read: Some(100),
                cache_write: Some(20),
                reasoning: None,
            },
        },
        failure: None,
    }
}

#[test]
fn a_round_is_a_client_span_of_the_conventions() {
    let span = round(&asked(), &answered(), Conventions::V1_41);
    assert_eq!(
        (span.name.as_str(), span.kind, span.failed),
        ("chat claude-x", SpanRole::Client, false)
    );
    assert_eq!(
        lines(&span),
        [
            "gen_ai.operation.name=chat",
            "gen_ai.provider.name=anthropic",
            "gen_ai.request.model=claude-x",
            "gen_ai.request.stream=true",
            "gen_ai.request.max_tokens=1024",
            "gen_ai.request.temperature=0.5",
            "server.address=api.example",
            "server.port=443",
            "knack.round=2",
            "http.response.status_code=200",
            "gen_ai.response.id=msg_1",
            "gen_ai.response.model=claude-x-1",
            "gen_ai.response.finish_reasons=[tool_use]",
            "gen_ai.response.time_to_first_chunk=0.25",
            "gen_ai.usage.input_tokens=125",
            "gen_ai.usage.output_tokens=4",
            "gen_ai.usage.cache_read.input_tokens=100",
            "gen_ai.usage.cache_creation.input_tokens=20",
        ]
    );
}

#[test]
fn the_latest_conventions_change_what_was_renamed_and_nothing_else() {
    let old = lines(&round(&asked(), &answered(), Conventions::V1_41));
    let new = lines(&round(&asked(), &answered(), Conventions::Latest));
    let renamed: Vec<String> = old
        .iter()
        .map(|line| line.replace("cache_creation", "cache_write"))
        .collect();
    assert_eq!(new, renamed);
    for (value, expected) in [
        (None, Conventions::V1_41),
        (Some(""), Conventions::V1_41),
        (Some("http"), Conventions::V1_41),
        (Some("http/dup, gen_ai_latest_experimental"), Conventions::Latest),
    ] {
        assert_eq!(Conventions::of_opt_in(value), expected, "{value:?}");
    }
}

#[test]
fn operation_provider_and_route_follow_the_format() {
    use CallKind::{Compact, Count, Generate};
    for (format, kind, expected) in [
        (Format::Chat, Generate, ("chat", "openai", "/v1/chat/completions")),
        (Format::Messages, Generate, ("chat", "anthropic", "/v1/messages")),
        (
            Format::Messages,
            Count,
            ("count_tokens", "anthropic", "/v1/messages/count_tokens"),
        ),
        (Format::Responses, Generate, ("chat", "openai", "/v1/responses")),
        (
            Format::Responses,
            Compact,
            ("compact", "openai", "/v1/responses/compact"),
        ),
        (
            Format::Responses,
            Count,
            ("count_tokens", "openai", "/v1/responses/input_tokens"),
        ),
        (
            Format::Gemini,
            Generate,
            (
                "generate_content",
                "gcp.gemini",
                "/v1beta/models/{model}:generateContent",
            ),
        ),
        (
            Format::Gemini,
            Count,
            ("count_tokens", "gcp.gemini", "/v1beta/models/{model}:countTokens"),
        ),
    ] {
        let found = (operation(format, kind), provider(format), route(format, kind));
        assert_eq!(found, expected, "{format:?} {kind:?}");
    }
}

#[test]
fn what_is_not_known_is_left_out() {
    let asked = ProviderRequest {
        model: String::new(),
        stream: false,
        server: None,
        request: RequestFacts::default(),
        round: 1,
        ..asked()
    };
    let span = round(&asked, &ProviderOutcome::default(), Conventions::V1_41);
    assert_eq!(span.name, "chat");
    assert_eq!(
        lines(&span),
        [
            "gen_ai.operation.name=chat",
            "gen_ai.provider.name=anthropic",
            "knack.round=1"
        ]
    );
    let span = call(&InjectedCall::default(), &CallFacts::default());
    assert_eq!(
        lines(&span),
        [
            "gen_ai.operation.name=execute_tool",
            "gen_ai.tool.name=",
            "gen_ai.tool.type=function",
            "knack.round=0"
        ]
    );
}

#[test]
fn a_failed_round_says_how_and_the_status_says_it_best() {
    let said = |status, said: Option<&str>, failure| ProviderOutcome {
        status,
        answer: AnswerFacts {
            error: said.map(ToOwned::to_owned),
            ..AnswerFacts::default()
        },
        failure,
        ..ProviderOutcome::default()
    };
    for (answered, expected) in [
        (said(Some(200), None, None), None),
        (said(Some(429), None, None), Some("429")),
        (
            said(Some(503), Some("overloaded_error"), Some(Failure::Unreadable)),
            Some("503"),
        ),
        (
            said(Some(200), Some("overloaded_error"), Some(Failure::Unreadable)),
            Some("overloaded_error"),
        ),
        (said(None, None, Some(Failure::Connect)), Some("connect")),
        (said(Some(200), None, Some(Failure::Broken)), Some("broken")),
        (said(Some(200), None, Some(Failure::Timeout)), Some("timeout")),
        (said(Some(200), None, Some(Failure::Unreadable)), Some("unreadable")),
        (said(None, None, Some(Failure::Cancelled)), Some("cancelled")),
    ] {
        let span = round(&asked(), &answered, Conventions::V1_41);
        let found = lines(&span)
            .into_iter()
            .find_map(|line| line.strip_prefix("error.type=").map(ToOwned::to_owned));
        assert_eq!(found.as_deref(), expected, "{answered:?}");
        assert_eq!(span.failed, expected.is_some());
    }
}

#[test]
fn a_call_names_tool_execution_and_skill() {
    let called = InjectedCall {
        name: "run_code".to_owned(),
        call_id: "toolu_1".to_owned(),
        round: 1,
    };
    let ran = CallFacts {
        execution: Some("019a".to_owned()),
        skill: Some("default/ball".to_owned()),
        start: Some("warm"),
        failure: None,
    };
    let span = call(&called, &ran);
    assert_eq!(
        (span.name.as_str(), span.kind, span.failed),
        ("execute_tool run_code", SpanRole::Internal, false)
    );
    assert_eq!(
        lines(&span),
        [
            "gen_ai.operation.name=execute_tool",
            "gen_ai.tool.name=run_code",
            "gen_ai.tool.call.id=toolu_1",
            "gen_ai.tool.type=function",
            "knack.round=1",
            "knack.execution.id=019a",
            "knack.execution.start=warm",
            "knack.skill=default/ball",
        ]
    );
    for (failure, word) in [
        (Failure::Run("timeout"), "error.type=timeout"),
        (Failure::Refused, "error.type=refused"),
        (Failure::Cancelled, "error.type=cancelled"),
    ] {
        let failed = CallFacts {
            failure: Some(failure),
            ..ran.clone()
        };
        let span = call(&called, &failed);
        assert!(span.failed);
        assert_eq!(lines(&span).last().map(String::as_str), Some(word));
    }
}

#[test]
fn a_request_is_a_server_span_whose_fault_is_the_servers_only() {
    let of = ClientRequest {
        route: "/v1/messages",
        path: "/gw/v1/messages".to_owned(),
        request_id: "r1".to_owned(),
        status: 200,
        cut: None,
        revision: "abc".to_owned(),
        skills: vec!["ball (always)".to_owned()],
        added_tokens: 90,
        rounds: 2,
    };
    let span = served(&of);
    assert_eq!((span.name.as_str(), span.kind), ("POST /v1/messages", SpanRole::Server));
    assert_eq!(
        lines(&span),
        [
            "http.request.method=POST",
            "http.route=/v1/messages",
            "url.path=/gw/v1/messages",
            "url.scheme=http",
            "http.response.status_code=200",
            "knack.request.id=r1",
            "knack.catalog.revision=abc",
            "knack.skills=[ball (always)]",
            "knack.added_tokens=90",
            "knack.rounds=2",
        ]
    );
    for (status, cut, expected) in [
        (200, None, None),
        (404, None, None),
        (502, None, Some("502")),
        (200, Some(Failure::Cancelled), Some("cancelled")),
        (499, Some(Failure::Cancelled), Some("cancelled")),
        (503, Some(Failure::Shutdown), Some("shutdown")),
        (200, Some(Failure::Broken), Some("broken")),
    ] {
        let span = served(&ClientRequest {
            status,
            cut: cut.clone(),
            ..of.clone()
        });
        let found = span.attributes.iter().find(|(name, _)| *name == "error.type");
        assert_eq!(
            found.map(|(_, value)| value.clone()),
            expected.map(Value::from),
            "{status} {cut:?}"
        );
        assert_eq!(span.failed, expected.is_some());
    }
}

#[test]
fn an_execution_at_a_hub_names_runtime_and_skill_and_how_it_ended() {
    let of = ExecutionFacts {
        runtime: "team-a/default".to_owned(),
        ran: CallFacts {
            execution: Some("019a".to_owned()),
            skill: Some("team-a/ball".to_owned()),
            start: Some("cold"),
            failure: Some(Failure::Run("timeout")),
        },
    };
    let span = executed(&of);
    assert_eq!(
        (span.name.as_str(), span.kind, span.failed),
        ("POST /v1/executions", SpanRole::Server, true)
    );
    assert_eq!(
        lines(&span),
        [
            "http.request.method=POST",
            "http.route=/v1/executions",
            "knack.runtime=team-a/default",
            "knack.execution.id=019a",
            "knack.execution.start=cold",
            "knack.skill=team-a/ball",
            "error.type=timeout",
        ]
    );
}
