//! How often one caller may call the Skills APIs: 429 beyond it, in the shape of the API that was asked.
//!
//! MCP's tools that manage skills are such calls too, so the limit is where both arrive: at [`Uploads::answer`].
//!
//! [`Uploads::answer`]: super::uploads::Uploads::answer

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use knack_registry::{ApiCall, OmniRoute, RefusalKind, deny};
use knack_serving::sources::{Pace, SourcePermit, Sources};
use tokio::time::Instant;

/// Runs that a program asks for: as many at once as MCP takes of one caller. How many of them run is the executor's affair, which
/// is fair among callers; the rest of the pace keeps a loop of failing requests from filling the history.
const RUNS: Pace = Pace {
    at_once: 32,
    burst: 1000,
    refill: Duration::from_millis(10),
};

/// How often one caller may do what.
#[derive(Debug, Clone, Copy)]
pub struct SkillPaces {
    /// Lists, records, contents, executions.
    pub reads: Pace,
    /// All that changes a skill.
    pub changes: Pace,
    /// Calls to a catalog: searches, and installs from it; an install is a change, too.
    pub(crate) fetches: Pace,
}

impl SkillPaces {
    /// The pace for a folder on this machine: a script may upload hundreds of skills, a hundred of them at once, since changes of a folder wait
    /// for each other; a loop may not fill the disk in a second. A catalog counts by its own limits what comes from here.
    pub const FOLDER: Self = Self {
        reads: Pace {
            at_once: 128,
            burst: 1000,
            refill: Duration::from_millis(10),
        },
        changes: Pace {
            at_once: 128,
            burst: 300,
            refill: Duration::from_millis(100),
        },
        fetches: Pace {
            at_once: 4,
            burst: 30,
            refill: Duration::from_secs(1),
        },
    };

    /// The paces of a gateway that relays to the registry of a cluster. That takes from one gateway 4 changes at once,
    /// 30 in a row and one a second, as many fetches, and 64 reads at once and 100 a second: at most half of that, so
    /// that no caller uses up what all of them have.
    pub(crate) const RELAYED: Self = Self {
        reads: Pace {
            at_once: 16,
            burst: 300,
            refill: Duration::from_millis(20),
        },
        changes: Pace {
            at_once: 2,
            burst: 15,
            refill: Duration::from_secs(2),
        },
        fetches: Pace {
            at_once: 2,
            burst: 15,
            refill: Duration::from_secs(2),
        },
    };
}

/// The calls of the callers of one process.
#[derive(Debug)]
pub struct SkillCalls {
    reads: Limit,
    changes: Limit,
    fetches: Limit,
    runs: Limit,
}

/// The right to one call, given back when dropped.
#[derive(Debug)]
pub struct SkillCall {
    _turns: Vec<SourcePermit>,
}

#[derive(Debug)]
struct Limit {
    /// The kind of call, for the text of the refusal.
    what: &'static str,
    pace: Pace,
    sources: Arc<Sources>,
}

impl SkillCalls {
    /// Calls at these paces.
    pub fn new(paces: SkillPaces) -> Self {
        Self {
            reads: Limit::new("requests", paces.reads),
            changes: Limit::new("changes", paces.changes),
            fetches: Limit::new("requests to the catalog", paces.fetches),
            runs: Limit::new("executions", RUNS),
        }
    }

    /// The right of a caller to a call. `address`: where it comes from, if nobody checked who it is. Error: the answer, 429 with
    /// `Retry-After`.
    pub fn admit(
        &self,
        call: &ApiCall,
        method: &Method,
        caller: &str,
        address: Option<IpAddr>,
        request_id: &str,
    ) -> Result<SkillCall, Box<Response<Bytes>>> {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let limits: &[&Limit] = match call {
            ApiCall::OmniRoute(OmniRoute::Execute) => &[&self.runs],
            ApiCall::OmniRoute(OmniRoute::Search(_)) => &[&self.fetches],
            ApiCall::OmniRoute(OmniRoute::InstallFrom(_)) => &[&self.fetches, &self.changes],
            _ if is_read => &[&self.reads],
            _ => &[&self.changes],
        };
        let now = Instant::now();
        // A key costs its sender nothing, an address does.
        let group = address.map_or_else(|| caller.to_owned(), |address| address.to_string());
        let turns: Result<Vec<SourcePermit>, &Limit> = limits
            .iter()
            .map(|limit| limit.sources.take_of_group(&group, caller, now).ok_or(*limit))
            .collect();
        turns.map(|turns| SkillCall { _turns: turns }).map_err(|limit| {
            let after = Some(limit.retry_after());
            Box::new(deny(call, RefusalKind::Throttled, limit.text(), after, request_id))
        })
    }
}

impl Limit {
    fn new(what: &'static str, pace: Pace) -> Self {
        let sources = Arc::new(Sources::new(pace));
        Self { what, pace, sources }
    }

    /// Seconds until there is one more.
    fn retry_after(&self) -> u64 {
        self.pace.refill.as_secs().max(1)
    }

    fn text(&self) -> String {
        let Pace { at_once, burst, refill } = self.pace;
        format!(
            "Too many {} by this caller: the limit is {at_once} at once, {burst} in a row, then one every {} s",
            self.what,
            refill.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, header};
    use knack_registry::route;

    use super::*;

    /// More than any pace lets in at once.
    const FAR: u32 = 1_000_000;

    fn call(method: &Method, path: &str) -> ApiCall {
        route(method, path, None, &HeaderMap::new()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn each_kind_of_call_has_its_own_pace_and_an_install_from_a_catalog_two() {
        let calls = SkillCalls::new(SkillPaces::RELAYED);
        let in_a_row = |method: &Method, path: &str, caller: &str| {
            let call = call(method, path);
            (0..FAR)
                .find(|_| calls.admit(&call, method, caller, None, "req_1").is_err())
                .unwrap()
        };
        let changes = SkillPaces::RELAYED.changes.burst;
        assert_eq!(in_a_row(&Method::POST, "/v1/skills", "flood"), changes);
        // In any API: they are changes of the same skills.
        for (method, path) in [
            (Method::PUT, "/api/v1/skills/a"),
            (Method::DELETE, "/api/skills/a"),
            (Method::POST, "/api/skills/skillssh/install"),
        ] {
            assert_eq!(in_a_row(&method, path, "flood"), 0, "{method} {path}");
        }
        assert_eq!(
            in_a_row(&Method::GET, "/v1/skills", "flood"),
            SkillPaces::RELAYED.reads.burst
        );
        assert_eq!(in_a_row(&Method::POST, "/api/skills/executions", "flood"), RUNS.burst);
        assert_eq!(
            in_a_row(&Method::GET, "/api/skills/skillssh", "flood"),
            SkillPaces::RELAYED.fetches.burst - 1,
            "the install that the other limit refused took one"
        );
        assert_eq!(in_a_row(&Method::POST, "/v1/skills", "other"), changes);

        let (post, path) = (Method::POST, "/v1/skills");
        let refused = calls
            .admit(&call(&post, path), &post, "flood", None, "req_1")
            .unwrap_err();
        assert_eq!(refused.status(), 429);
        let seconds = refused.headers()[header::RETRY_AFTER]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(in_a_row(&post, path, "flood"), 1, "one more after that time");
    }

    #[test]
    fn a_call_takes_its_place_until_it_is_answered() {
        let calls = SkillCalls::new(SkillPaces::RELAYED);
        let create = call(&Method::POST, "/api/v1/skills");
        let admit = || calls.admit(&create, &Method::POST, "one", None, "req_1");
        let held: Vec<SkillCall> = (0..SkillPaces::RELAYED.changes.at_once)
            .map(|_| admit().unwrap())
            .collect();
        assert_eq!(admit().unwrap_err().status(), 429);
        drop(held);
        assert!(admit().is_ok());
    }

    #[test]
    fn keys_that_are_made_up_lock_no_caller_of_another_address_out() {
        let calls = SkillCalls::new(SkillPaces::RELAYED);
        let list = call(&Method::GET, "/v1/skills");
        let admit = |key: &str, last: u8| {
            let address = IpAddr::from([10, 0, 0, last]);
            calls.admit(&list, &Method::GET, key, Some(address), "req_1")
        };
        let held: Vec<_> = (0..100_000).map(|key| admit(&key.to_string(), 1)).collect();
        assert!(held.iter().filter(|admitted| admitted.is_ok()).count() < 1000);
        let own: Vec<_> = (0..SkillPaces::RELAYED.reads.at_once)
            .map(|_| admit("own", 2))
            .collect();
        assert!(own.iter().all(Result::is_ok));
        assert!(admit("own", 2).is_err(), "as many as ever");
        let checked = calls.admit(&list, &Method::GET, "account", None, "req_1");
        assert!(checked.is_ok(), "who was checked is no part of any address");
    }
}
