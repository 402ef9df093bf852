//! Both ends of a conversation: a client that sends back what it saw, a gateway with a store, and a strict upstream.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use knack_wire::drive::{AnswerHead, CallOutcome, Drive, DriveAction};
use knack_wire::history::{
    self, Caller, Expansion, HistorySecret, InjectionMode, ResultTexts, RunText, SavedTurn, ShownRun, TurnKey,
    TurnMatch,
};
use knack_wire::{CallKind, DriveInput, DriveSettings, Format, Injection, ModelRoute, Request, Tool, ToolCall};
use serde_json::Value;

mod client;
mod gemini;
mod responses;
mod upstream;

pub(crate) use client::Client;
pub(crate) use upstream::Upstream;

const LOADED: &str = "SKILL \"csv\" is loaded.\nUse it.";

/// The members that hold a conversation.
const CONVERSATIONS: [&str; 3] = ["messages", "input", "contents"];

/// What stands before the conversation in a body.
pub(crate) fn before_messages(body: &str) -> &str {
    let start = CONVERSATIONS
        .iter()
        .find_map(|key| body.find(&format!("\"{key}\":[")))
        .unwrap();
    &body[..start]
}

/// The elements of the conversation as written in a body.
pub(crate) fn inner_messages(body: &str) -> &str {
    let members = knack_wire::json::object(body.as_bytes()).unwrap();
    let list = CONVERSATIONS
        .iter()
        .find_map(|key| knack_wire::json::member(body.as_bytes(), &members, key))
        .unwrap()
        .value;
    &body[list.start + 1..list.end - 1]
}

/// The gateway's side: a store, results, and the loop.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) format: Format,
    pub(crate) secret: u8,
    pub(crate) credential: String,
    pub(crate) store: HashMap<TurnKey, Arc<SavedTurn>>,
    pub(crate) openings: HashSet<TurnKey>,
    pub(crate) skill_changed: bool,
    pub(crate) max_rounds: u32,
    pub(crate) native: bool,
    pub(crate) runs: u32,
    /// Lengths of the pieces in which the upstream's bytes come, again and again; none: whole.
    pub(crate) pieces: Vec<usize>,
}

impl Gateway {
    pub(crate) fn new(format: Format, secret: u8) -> Self {
        let credential = "Bearer shared".to_owned();
        Self {
            format,
            secret,
            credential,
            store: HashMap::new(),
            openings: HashSet::new(),
            skill_changed: false,
            max_rounds: 10,
            native: false,
            runs: 0,
            pieces: Vec::new(),
        }
    }

    /// One HTTP request: returns the body that the client gets.
    pub(crate) fn exchange(&mut self, body: &str, upstream: &mut Upstream) -> String {
        let route = ModelRoute {
            format: self.format,
            kind: CallKind::Generate,
            model: None,
            stream: false,
            vertex: false,
        };
        let request = Request::parse(route, Bytes::from(body.to_owned())).unwrap();
        let settings = DriveSettings {
            max_rounds: self.max_rounds,
            native: self.native,
            run_tool: self.native.then(|| "run_code".to_owned()),
            ..DriveSettings::default()
        };
        let mut drive = Drive::new(request, injection(), settings).unwrap();
        let now = Duration::ZERO;
        let (mut out, mut client) = (Vec::new(), Vec::new());
        let Expansion { edits, open_calls, .. } = self.look_up(drive.request());
        drive.start(edits, open_calls, now, &mut out);
        while !out.is_empty() {
            for action in std::mem::take(&mut out) {
                match action {
                    DriveAction::Send { body, .. } => {
                        let (stream, answer) = upstream.answer(&body);
                        drive.feed(
                            DriveInput::Head(AnswerHead {
                                status: 200,
                                stream,
                                retry_after: None,
                            }),
                            now,
                            &mut out,
                        );
                        let mut left = Bytes::from(answer);
                        for length in self.pieces.iter().cycle() {
                            if left.len() <= *length
                                || out.iter().any(|action| matches!(action, DriveAction::Send { .. }))
                            {
                                break;
                            }
                            drive.feed(DriveInput::Body(left.split_to(*length)), now, &mut out);
                        }
                        if !out.iter().any(|action| matches!(action, DriveAction::Send { .. })) {
                            drive.feed(DriveInput::Body(left), now, &mut out);
                        }
                        if !out.iter().any(|action| matches!(action, DriveAction::Send { .. })) {
                            drive.feed(DriveInput::End, now, &mut out);
                        }
                    }
                    DriveAction::Run(call) => {
                        let outcome = self.run(&call);
                        drive.feed(DriveInput::Result(outcome), now, &mut out);
                    }
                    DriveAction::Remember(hidden) => self.remember(drive.request(), &hidden),
                    DriveAction::ClientBytes(bytes) => client.extend_from_slice(&bytes),
                    DriveAction::ClientHead(head) => assert_eq!(head.status, 200),
                    DriveAction::Note(_) | DriveAction::Finish(_) => {}
                }
            }
        }
        assert!(drive.finished(), "the loop waits for nothing");
        String::from_utf8(client).unwrap()
    }

    fn caller(&self) -> Caller {
        Caller::new(&HistorySecret::new([self.secret; 32]), self.credential.as_bytes())
    }

    fn look_up(&self, request: &Request) -> Expansion {
        let scan = history::scan(request);
        let hits: Vec<TurnMatch> = scan
            .lookups(&self.caller())
            .into_iter()
            .filter_map(|lookup| {
                let saved = Arc::clone(lookup.keys.iter().find_map(|key| self.store.get(key))?);
                Some(TurnMatch {
                    turn: lookup.turn,
                    saved,
                })
            })
            .collect();
        let begins = history::opening(request).map(|link| self.caller().opening_key(&link));
        assert!(
            hits.is_empty()
                || history::may_hold_calls(request)
                || begins.is_some_and(|opening| self.openings.contains(&opening)),
            "a record that a gateway would not have asked for"
        );
        let mode = InjectionMode::Injecting {
            run_tool: Some("run_code"),
        };
        let mut words = Said {
            skill_changed: self.skill_changed,
        };
        history::expand(request, &scan, &hits, (mode, self.native), &mut words)
    }

    fn remember(&mut self, request: &Request, hidden: &knack_wire::HiddenTurns) {
        let keys = history::keys(&self.caller(), &history::scan(request).chain(), hidden);
        let mut render = |_: &str| Some(LOADED.to_owned());
        let saved = history::seal(self.format, hidden, Vec::new(), &mut render);
        let (turn, by_id) = (Arc::new(saved.turn.unwrap()), Arc::new(saved.id.unwrap()));
        self.openings.insert(keys.opening);
        self.store
            .extend(keys.turn.into_iter().map(|key| (key, Arc::clone(&turn))));
        self.store.extend(keys.id.map(|key| (key, by_id)));
    }

    fn run(&mut self, call: &ToolCall) -> CallOutcome {
        serde_json::from_str::<Value>(&call.arguments).unwrap();
        let (text, reference) = if call.name == "load_skill" {
            (LOADED.to_owned(), Some("csv@1".to_owned()))
        } else {
            self.runs += 1;
            (format!("run result {}", self.runs), None)
        };
        CallOutcome {
            token: call.token,
            text,
            reference,
            ..CallOutcome::default()
        }
    }
}

/// The words of results that are put back.
struct Said {
    skill_changed: bool,
}

impl ResultTexts for Said {
    fn load(&mut self, _: &str) -> String {
        if self.skill_changed {
            "This skill changed; load it again.".to_owned()
        } else {
            LOADED.to_owned()
        }
    }

    fn run(&mut self, run: &ShownRun) -> RunText {
        RunText {
            text: format!("seen: {}", run.stdout),
            files: Vec::new(),
        }
    }
}

fn injection() -> Injection {
    let tool = |name: &str| Tool {
        name: name.to_owned(),
        description: "d".to_owned(),
        schema: r#"{"type":"object"}"#.to_owned(),
    };
    Injection::new("# Skills".to_owned(), vec![tool("load_skill"), tool("run_code")])
}
