//! The history of executions, and runs that a program asks for: `/api/skills/executions`.

use std::sync::Arc;

use async_trait::async_trait;
use knack_skill::model::{Skill, SkillRef};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::caller_skills::CallerSkills;
use super::install::demand_known;
use super::repeats::{IdempotencyAuthority, RepeatDecision, RunObserver, idempotency_key, no_history};
use super::rows::{Item, Row, refused, skill_of};
use crate::answer::{Refusal, RefusalKind};
use crate::api_request::ApiRequest;
use crate::history::{ExecutedSkill, Execution, ExecutionQuery, History, Status, id_of};
use crate::json::{read_aside, read_json};
use crate::mode::Mode;
use crate::numbered_page::NumberedPage;
use crate::owner::Owner;
use crate::query::parameters;

/// Executions of a page that does not say.
const LIMIT_DEFAULT: usize = 50;
/// Characters of the id of a session.
const WORD_MAX: usize = 256;
/// Members of a body.
const MEMBERS: [&str; 7] = ["skillName", "skillId", "id", "tool", "input", "sessionId", "apiKeyId"];

/// A run that a program asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdHocRun {
    /// The skill, in the version that is meant.
    pub skill: SkillRef,
    /// The tool, as the skill declares it.
    pub tool: String,
    /// Its arguments as a JSON object.
    pub arguments: String,
    /// Which run it is.
    pub identity: Identity,
}

/// The parts of a run's id, so that the same run has the same id at every replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The gateway's request.
    pub request: String,
    /// Its execution in the history.
    pub execution: String,
    /// When it was asked for, Unix time in microseconds.
    pub begun: i64,
}

/// The progress of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The status.
    pub status: Status,
    /// The run's output.
    pub output: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// From its beginning to its end.
    pub duration_ms: Option<u64>,
}

/// Why nothing was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunRefusal {
    /// Nothing is run here at this time: 503.
    Closed(String),
    /// The arguments are not those of the tool: 400.
    Arguments(String),
    /// The runtime does not offer the tool: 403.
    NotOffered(String),
}

/// The callback for each step of a run.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Runs declared tools.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Why nothing is run here at this time.
    fn closed(&self) -> Option<String>;
    /// Runs a tool once; `on_progress` is called with each step, and with the last, which is the answer.
    async fn run(&self, run: AdHocRun, on_progress: OnProgress) -> Result<Progress, RunRefusal>;
}

/// The state for the calls of this file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecutionContext<'a> {
    pub(crate) history: Option<&'a Arc<dyn History>>,
    pub(crate) authority: IdempotencyAuthority<'a>,
}

impl<'a> ExecutionContext<'a> {
    fn history(self) -> Result<&'a Arc<dyn History>, Refusal> {
        self.history.ok_or_else(no_history)
    }

    /// A page of the caller's executions, the newest first.
    pub(crate) async fn list(self, owner: &Owner, query: Option<&str>) -> Result<Value, Refusal> {
        let (sought, page) = sought(owner, query)?;
        let found = self.history()?.find(owner, &sought).await;
        let found = found.map_err(|error| refused(error, ""))?;
        let data: Vec<Value> = found.items.iter().map(Execution::shown).collect();
        Ok(page.answer(&data, found.total))
    }

    /// One of the caller's executions.
    pub(crate) async fn get(self, owner: &Owner, id: &str) -> Result<Value, Refusal> {
        let found = self.history()?.get(owner, id).await;
        let found = found.map_err(|error| refused(error, id))?;
        let missing = || Refusal::new(RefusalKind::NotFound, "id", format!("Execution not found: {id}"));
        found.map(|execution| execution.shown()).ok_or_else(missing)
    }

    /// Runs a tool of a skill.
    pub(crate) async fn run(
        self,
        skills: CallerSkills<'_>,
        asked: &ApiRequest,
        runs: &dyn Runs,
    ) -> Result<Value, Refusal> {
        let CallerSkills { store, owner, .. } = skills;
        let key = idempotency_key(&asked.headers)?;
        if let Some(why) = runs.closed() {
            return Err(closed(why));
        }
        let caller = owner.clone();
        let wanted = read_aside(&asked.body, move |body| RunBody::read(body, &caller)).await?;
        let row = skills.find(&wanted.skill).await?;
        let shown = shown_name(&row);
        if row.item.mode() == Mode::Off {
            let text = format!("Skill is disabled: {shown}; set its mode to on or auto first");
            return Err(Refusal::new(RefusalKind::Conflict, "skillName", text));
        }
        let skill = skill_of(store, owner, &row.item).await?;
        let arguments = Value::Object(wanted.input.clone()).to_string();
        let mut first = wanted.execution(owner, &skill, &arguments, &asked.request_id);
        if let Some(key) = key {
            first.id = id_of(&json!([owner.text(), key]));
            first.fingerprint = Some(wanted.fingerprint(key));
        }
        let observer = match key {
            None => RunObserver::History(self.history.cloned()),
            Some(_) => match self.authority.decide(self.history, &first).await? {
                RepeatDecision::Own(observer) => observer,
                RepeatDecision::Done(execution) => {
                    return Ok(json!({"execution": execution.shown(), "replayed": true}));
                }
            },
        };
        let run = BegunRun {
            first: observer.first().unwrap_or(first),
            arguments,
            skill: &skill,
            shown: &shown,
        };
        let done = run.finish(&wanted, runs, &observer).await;
        observer.settle().await;
        Ok(json!({"execution": done?.shown(), "replayed": false}))
    }
}

/// A run that begins now.
struct BegunRun<'a> {
    /// Its execution before its first step.
    first: Execution,
    /// Its arguments as a JSON object.
    arguments: String,
    skill: &'a Skill,
    /// The skill's name and version, as the caller sees them.
    shown: &'a str,
}

impl BegunRun<'_> {
    /// Runs it to its end.
    async fn finish(self, wanted: &RunBody, runs: &dyn Runs, observer: &RunObserver<'_>) -> Result<Execution, Refusal> {
        let Self {
            first,
            arguments,
            skill,
            shown,
        } = self;
        let tool = match wanted.tool(skill, shown) {
            Ok(tool) => tool,
            Err(refusal) => {
                if skill.tools.is_empty() {
                    (observer.note())(failed(first, &refusal.message));
                }
                return Err(refusal);
            }
        };
        let first = Execution {
            tool: tool.clone(),
            ..first
        };
        let (note, begun) = (observer.note(), first.clone());
        let on_progress: OnProgress =
            Arc::new(move |progress| note(with(begun.clone(), &progress, Execution::with_output)));
        let run = AdHocRun {
            skill: skill.id.clone(),
            tool,
            arguments,
            identity: Identity {
                request: first.request.clone(),
                execution: first.id.clone(),
                begun: first.created,
            },
        };
        let progress = runs.run(run, on_progress).await.map_err(|why| match why {
            RunRefusal::Closed(why) => closed(why),
            RunRefusal::Arguments(why) => Refusal::invalid("input", why),
            RunRefusal::NotOffered(why) => Refusal::new(RefusalKind::Forbidden, "tool", why),
        })?;
        Ok(with(first, &progress, Execution::with_whole_output))
    }
}

fn closed(why: String) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, "", why)
}

fn failed(execution: Execution, why: &str) -> Execution {
    let ended = Execution {
        status: Status::Error,
        duration_ms: Some(0),
        ..execution
    };
    ended.with_error(why)
}

/// `with_output`: within the bound of what is stored, or of an answer.
fn with(execution: Execution, progress: &Progress, with_output: fn(Execution, &str) -> Execution) -> Execution {
    let mut now = Execution {
        status: progress.status,
        duration_ms: progress.duration_ms,
        ..execution
    };
    if let Some(output) = &progress.output {
        now = with_output(now, output);
    }
    match &progress.error {
        Some(error) => now.with_error(error),
        None => now,
    }
}

fn shown_name(row: &Row<Item>) -> String {
    match &row.version {
        Some(version) => format!("{}@{version}", row.name),
        None => row.name.clone(),
    }
}

/// The request of a body.
struct RunBody {
    skill: String,
    tool: Option<String>,
    input: Map<String, Value>,
    session: Option<String>,
}

impl RunBody {
    fn read(body: &[u8], owner: &Owner) -> Result<Self, Refusal> {
        let body: Value = read_json(body).map_err(|error| Refusal::invalid("body", error.to_string()))?;
        let Value::Object(members) = body else {
            return Err(Refusal::invalid("body", "must be a JSON object"));
        };
        demand_known(&members, &MEMBERS)?;
        super::install::of_caller(&members, owner)?;
        let word = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() && text.len() <= WORD_MAX => Ok(Some(text.clone())),
            Some(_) => {
                let text = format!("must be a string of 1 to {WORD_MAX} bytes");
                Err(Refusal::invalid(name, text))
            }
        };
        let mut named = Vec::new();
        for member in ["skillName", "skillId", "id"] {
            named.extend(word(member)?);
        }
        let Ok([skill]) = <[String; 1]>::try_from(named) else {
            let text = "set skillName (a name, name@1.0.0 or name@^1) or skillId";
            return Err(Refusal::invalid("skillName", text));
        };
        let input = match members.get("input") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(input)) => input.clone(),
            Some(_) => {
                return Err(Refusal::invalid(
                    "input",
                    "must be an object with the arguments of the tool",
                ));
            }
        };
        Ok(Self {
            skill,
            tool: word("tool")?,
            input,
            session: word("sessionId")?,
        })
    }

    /// The declared tool that is meant: the named one, or the only one.
    fn tool(&self, skill: &Skill, shown: &str) -> Result<String, Refusal> {
        let names: Vec<&str> = skill.tools.iter().map(|tool| tool.name.as_str()).collect();
        let several = |names: &[&str]| format!("{shown} declares the tools {}; name one of them", names.join(", "));
        match (&self.tool, names.as_slice()) {
            (_, []) => {
                let text = format!("Handler not found: {shown} declares no tool that can be run");
                Err(Refusal::invalid("skillName", text))
            }
            (Some(tool), names) if names.contains(&tool.as_str()) => Ok(tool.clone()),
            (None, [only]) => Ok((*only).to_owned()),
            (_, names) => Err(Refusal::invalid("tool", several(names))),
        }
    }

    /// What tells a repeat from another request under the same key: the request as it was sent, since a skill may have been edited
    /// before a repeat. With the key, so that nobody who reads it can try arguments out.
    fn fingerprint(&self, key: &str) -> String {
        let mut request = json!([key, self.skill, self.tool, self.input]);
        // A client may write the members of its input in another order each time.
        request.sort_all_objects();
        id_of(&request)
    }

    /// The execution that a request begins now, under an id of its own.
    fn execution(&self, owner: &Owner, skill: &Skill, arguments: &str, request: &str) -> Execution {
        let execution = Execution {
            id: Uuid::now_v7().to_string(),
            caller: owner.clone(),
            skill: Some(ExecutedSkill::of(skill)),
            tool: self.tool.clone().unwrap_or_default(),
            session: self.session.clone(),
            request: request.to_owned(),
            fingerprint: None,
            input: Value::Null,
            output: Value::Null,
            truncated: false,
            status: Status::Pending,
            error: None,
            duration_ms: None,
            created: jiff::Timestamp::now().as_microsecond(),
            withdrawn: false,
        };
        execution.with_input(arguments)
    }
}

/// The parameters of a list, and its page.
fn sought(owner: &Owner, query: Option<&str>) -> Result<(ExecutionQuery, NumberedPage), Refusal> {
    let mut page = NumberedPage::first(LIMIT_DEFAULT);
    let (mut skill, mut status, mut others) = (None, None, false);
    for (key, value) in parameters(query).filter(|(_, value)| !value.is_empty()) {
        match key.as_str() {
            // Refused below, as in the body of a run: nobody sees another's.
            "apiKeyId" => others = value != owner.shown(),
            "skillId" => skill = Some(value),
            "status" => {
                let words = Status::ALL.map(Status::word).join(", ");
                let text = format!("must be one of {words}");
                status = Some(Status::of_word(&value).ok_or_else(|| Refusal::invalid("status", text))?);
            }
            _ => page.read(&key, &value)?,
        }
    }
    if others {
        let text = "must be the id of the request's credential; omit it";
        return Err(Refusal::invalid("apiKeyId", text));
    }
    let sought = ExecutionQuery {
        skill,
        status,
        skip: page.skip(),
        limit: page.limit,
    };
    Ok((sought, page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner::from([1; 32])
    }

    #[test]
    fn what_a_list_is_asked_for_is_bounded() {
        let (all, page) = sought(&owner(), None).unwrap();
        assert_eq!((page.number, all.skip, all.limit), (1, 0, 50));
        let query = format!(
            "apiKeyId={}&skillId=a%40b&status=timeout&page=3&limit=100",
            owner().text()
        );
        let (some, page) = sought(&owner(), Some(&query)).unwrap();
        assert_eq!((page.number, some.skip, some.limit), (3, 200, 100));
        assert_eq!(
            (some.skill.as_deref(), some.status),
            (Some("a@b"), Some(Status::Timeout))
        );
        for (query, field) in [
            ("limit=101", "limit"),
            ("limit=0", "limit"),
            ("page=0", "page"),
            ("status=done", "status"),
            ("apiKeyId=another", "apiKeyId"),
        ] {
            let refused = sought(&owner(), Some(query)).unwrap_err();
            assert_eq!((refused.kind, refused.field.as_str()), (RefusalKind::Invalid, field));
        }
    }

    #[test]
    fn a_body_is_refused_by_the_member_that_is_wrong() {
        for (body, field) in [
            ("", "body"),
            ("[]", "body"),
            ("{}", "skillName"),
            (r#"{"skillName": "a", "skillId": "b"}"#, "skillName"),
            (r#"{"skillName": 1}"#, "skillName"),
            (r#"{"skillName": "a", "input": []}"#, "input"),
            (r#"{"skillName": "a", "sessionId": ""}"#, "sessionId"),
            (r#"{"skillName": "a", "apiKeyId": "somebody"}"#, "apiKeyId"),
            (r#"{"skillName": "a", "handler": "x"}"#, "handler"),
        ] {
            let refused = RunBody::read(body.as_bytes(), &owner()).err().unwrap();
            assert_eq!(
                (refused.kind, refused.field.as_str()),
                (RefusalKind::Invalid, field),
                "{body}"
            );
        }
    }
}
