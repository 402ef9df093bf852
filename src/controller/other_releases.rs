//! Other releases of Knack in the same cluster. Two controllers that manage the same namespaces would overwrite each
//! other's status, so the later one refuses to start work, and names the other, until that one is gone.
//!
//! Every controller keeps a Lease of one name in the namespace of its release, with an annotation that lists the
//! namespaces that it manages. A Lease that changes between two reads belongs to a live process; clocks are never
//! compared. Whoever may write Leases in a namespace can make one of this name, so it counts only if the API server says
//! that the ServiceAccount of a controller there may do what a controller does, in all namespaces that the Lease lists.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use knack_hub_api::ServiceAccountName;
use knack_vocabulary::{ANNOTATION_SCOPE, GROUP, LEASE_CONTROLLER};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use super::error::ControllerError;
use super::http::Phase;
use super::settings::ControllerSettings;
use crate::access_review::service_account;
use crate::api_call::{CALL_TIMEOUT, within};

/// Pause between two checks: a holder renews its Lease every three seconds.
const RENEWAL_PAUSE: Duration = Duration::from_secs(8);
/// How often a controller that leads checks for another one: two may have started in the same moment.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Leases read at most; releases beyond it go unseen.
const RELEASES_MAX: u32 = 500;
/// Namespaces of one release whose rights are asked for; a release has them in all of its namespaces.
const RIGHTS_MAX: usize = 16;
/// Every namespace.
const EVERYWHERE: &str = "*";
/// The ServiceAccount of every release's controller.
const CONTROLLER_ACCOUNT: &str = "knack-controller";

/// A release, by its controller's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Release {
    namespace: String,
    scope: String,
    /// Changes on every Lease renewal.
    version: String,
    is_held: bool,
    created: Option<Timestamp>,
}

/// The namespaces that a release manages, from its Lease.
pub(super) fn scope(settings: &ControllerSettings) -> String {
    let namespaces = settings.namespaces();
    if namespaces.is_empty() {
        return EVERYWHERE.to_owned();
    }
    namespaces.into_iter().collect::<Vec<_>>().join(",")
}

/// Waits until no other release manages one of this release's namespaces.
pub(super) async fn wait_until_alone(client: &Client, settings: &ControllerSettings, phase: &watch::Sender<Phase>) {
    let mut logged = false;
    loop {
        let before = list_releases(client).await;
        if candidates(&before, settings).next().is_none() {
            break;
        }
        sleep(RENEWAL_PAUSE).await;
        let now = list_releases(client).await;
        let Some(rival) = believed(client, alive(&before, &now, settings), true).await else {
            break;
        };
        if !logged {
            error!(rival = %rival.namespace, "{}", refusal(&rival));
            logged = true;
        }
        phase.send_replace(Phase::Refused(refusal(&rival)));
    }
    if logged {
        info!("the other release of Knack is gone");
    }
}

/// Returns when another release is found that was there before this one; while it is not, never.
pub(super) async fn meet(client: &Client, settings: &ControllerSettings) -> ControllerError {
    loop {
        sleep(CHECK_INTERVAL).await;
        let before = list_releases(client).await;
        if candidates(&before, settings).next().is_none() {
            continue;
        }
        sleep(RENEWAL_PAUSE).await;
        let now = list_releases(client).await;
        if let Some(rival) = believed(client, alive(&before, &now, settings), false).await
            && yields(&now, &rival, settings)
        {
            return ControllerError::Stopped(refusal(&rival));
        }
    }
}

/// Releases that manage one of this release's namespaces.
fn candidates<'a>(releases: &'a [Release], settings: &ControllerSettings) -> impl Iterator<Item = &'a Release> {
    let (own, namespace) = (scope(settings), settings.namespace.clone());
    releases
        .iter()
        .filter(move |release| release.namespace != namespace && release.is_held && overlap(&own, &release.scope))
}

/// Releases that renewed their Leases between two checks.
fn alive(before: &[Release], now: &[Release], settings: &ControllerSettings) -> Vec<Release> {
    let renewed = |release: &&Release| {
        before
            .iter()
            .any(|earlier| earlier.namespace == release.namespace && earlier.version != release.version)
    };
    candidates(now, settings).filter(renewed).cloned().collect()
}

/// The first release whose controller has the rights of one. `without_answer`: the first about which the API server does not answer
/// is believed too; at a start, two releases that overwrite each other are worse than one that waits. One whose rights this controller may
/// not ask for is always believed.
async fn believed(client: &Client, releases: Vec<Release>, without_answer: bool) -> Option<Release> {
    for release in releases {
        match may_manage(client, &release).await {
            Ok(true) => return Some(release),
            // Somebody's choice, at each check anew.
            Ok(false) => debug!(
                namespace = %release.namespace,
                "ignoring the Lease {LEASE_CONTROLLER}: the ServiceAccount {CONTROLLER_ACCOUNT} of its namespace may not write the status of Skills, so it is of no release of Knack"
            ),
            Err(error) => {
                warn!(%error, "could not ask for the rights of another release of Knack");
                let is_refused = matches!(&error, kube::Error::Api(status) if status.code == 403);
                if without_answer || is_refused {
                    return Some(release);
                }
            }
        }
    }
    None
}

/// Whether the controller of a release may write the status of Skills in the namespaces that its Lease lists.
async fn may_manage(client: &Client, release: &Release) -> Result<bool, kube::Error> {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    for review in rights(release) {
        let answer = within(CALL_TIMEOUT, api.create(&PostParams::default(), &review)).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The questions for the rights that a release has if it is one.
fn rights(release: &Release) -> impl Iterator<Item = SubjectAccessReview> {
    let account = ServiceAccountName::new(release.namespace.clone(), CONTROLLER_ACCOUNT);
    let of = move |namespace: &str| SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                // In all namespaces, if it is empty.
                namespace: Some(namespace.replace(EVERYWHERE, "")),
                verb: Some("patch".to_owned()),
                group: Some(GROUP.to_owned()),
                resource: Some("skills".to_owned()),
                subresource: Some("status".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..service_account(&account)
        },
        ..SubjectAccessReview::default()
    };
    release
        .scope
        .split(',')
        .take(RIGHTS_MAX)
        .map(of)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Whether the release of these settings gives way: its Lease is the younger one.
fn yields(releases: &[Release], rival: &Release, settings: &ControllerSettings) -> bool {
    let own = releases.iter().find(|release| release.namespace == settings.namespace);
    own.is_some_and(|own| (rival.created, &rival.namespace) < (own.created, &own.namespace))
}

fn overlap(one: &str, other: &str) -> bool {
    one == EVERYWHERE || other == EVERYWHERE || one.split(',').any(|name| other.split(',').any(|other| other == name))
}

fn refusal(rival: &Release) -> String {
    let scope = match rival.scope.as_str() {
        EVERYWHERE => "all namespaces",
        some => some,
    };
    format!(
        "the release of Knack in namespace {} already manages {scope}, and two would overwrite each other's status: \
         uninstall one of them, or give each its own watchNamespaces",
        rival.namespace
    )
}

async fn list_releases(client: &Client) -> Vec<Release> {
    let api: Api<Lease> = Api::all(client.clone());
    let parameters = ListParams::default()
        .fields(&format!("metadata.name={LEASE_CONTROLLER}"))
        .limit(RELEASES_MAX);
    match within(CALL_TIMEOUT, api.list(&parameters)).await {
        Ok(list) => list.items.iter().map(release).collect(),
        Err(error) => {
            warn!(%error, "could not check for other releases of Knack");
            Vec::new()
        }
    }
}

fn release(lease: &Lease) -> Release {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    Release {
        namespace: lease.namespace().unwrap_or_default(),
        // A Lease without the annotation is of a version that managed every namespace it could.
        scope: lease
            .annotations()
            .get(ANNOTATION_SCOPE)
            .map_or(EVERYWHERE, String::as_str)
            .to_owned(),
        version: lease.resource_version().unwrap_or_default(),
        is_held: holder.is_some_and(|holder| !holder.is_empty()),
        created: lease.creation_timestamp().map(|time| time.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(watch_namespaces: &[&str]) -> ControllerSettings {
        ControllerSettings {
            namespace: "own".to_owned(),
            watch_namespaces: watch_namespaces.iter().map(|name| (*name).to_owned()).collect(),
            runtime_namespaces: vec!["sandboxes".to_owned()],
            ..crate::controller::fixture::settings()
        }
    }

    fn release(namespace: &str, scope: &str, version: &str, created: i64) -> Release {
        Release {
            namespace: namespace.to_owned(),
            scope: scope.to_owned(),
            version: version.to_owned(),
            is_held: true,
            created: Timestamp::from_second(created).ok(),
        }
    }

    #[test]
    fn a_release_that_is_there_and_manages_one_of_ours_is_a_rival() {
        let free = Release {
            is_held: false,
            ..release("b", "*", "2", 1)
        };
        for (ours, before, now, expected) in [
            (&[][..], release("b", "*", "1", 1), release("b", "*", "2", 1), true),
            (
                &[],
                release("b", "team-a", "1", 1),
                release("b", "team-a", "2", 1),
                true,
            ),
            (&["team-a"], release("b", "*", "1", 1), release("b", "*", "2", 1), true),
            (
                &["team-a"],
                release("b", "team-a,team-b", "1", 1),
                release("b", "team-a,team-b", "2", 1),
                true,
            ),
            (
                &["team-a"],
                release("b", "team-b", "1", 1),
                release("b", "team-b", "2", 1),
                false,
            ),
            // Not renewed: left behind by a process that is gone.
            (&[], release("b", "*", "1", 1), release("b", "*", "1", 1), false),
            (&[], release("b", "*", "1", 1), free, false),
            (&[], release("own", "*", "1", 1), release("own", "*", "2", 1), false),
        ] {
            let found = alive(&[before], std::slice::from_ref(&now), &settings(ours));
            assert_eq!(!found.is_empty(), expected, "{ours:?} {now:?}");
        }
    }

    /// Every application with leader election may write Leases in its namespace.
    #[tokio::test]
    async fn a_lease_of_a_namespace_whose_controller_has_no_rights_is_no_release() {
        // Who may write the status of Skills, and where; empty: in all namespaces.
        let rights = [("knack", ""), ("small", "team-a"), ("small", "team-b")];
        let answer = move |request: axum::extract::Json<SubjectAccessReview>| async move {
            let asked = &request.spec;
            let attributes = asked.resource_attributes.clone().unwrap_or_default();
            assert_eq!(
                (attributes.resource.as_deref(), attributes.subresource.as_deref()),
                (Some("skills"), Some("status"))
            );
            let allowed = rights.iter().any(|(namespace, at)| {
                asked.user == Some(format!("system:serviceaccount:{namespace}:knack-controller"))
                    && attributes.namespace.as_deref() == Some(at)
            });
            axum::Json(serde_json::json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked, "status": {"allowed": allowed}}))
        };
        let router = axum::Router::new().route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            axum::routing::post(answer),
        );
        let client = Client::new(router, "default");
        for (lease, expected) in [
            (release("knack", "*", "2", 1), true),
            (release("small", "team-a,team-b", "2", 1), true),
            (release("small", "*", "2", 1), false),
            (release("small", "team-a,team-c", "2", 1), false),
            (release("tenant", "*", "2", 1), false),
            (release("tenant", "team-a", "2", 1), false),
            (release("tenant", "", "2", 1), false),
        ] {
            let found = believed(&client, vec![lease.clone()], true).await;
            assert_eq!(found.is_some(), expected, "{lease:?}");
        }
        let both = vec![release("tenant", "*", "2", 1), release("knack", "*", "2", 1)];
        let found = believed(&client, both, true).await;
        assert_eq!(found.map(|found| found.namespace), Some("knack".to_owned()));
        // Two that overwrite each other are worse than one that waits.
        let broken = Client::new(axum::Router::new(), "default");
        for without_answer in [true, false] {
            let found = believed(&broken, vec![release("knack", "*", "2", 1)], without_answer).await;
            assert_eq!(found.is_some(), without_answer);
        }
    }

    #[test]
    fn namespaces_where_code_runs_are_managed_too() {
        for (watched, expected, of_others) in [
            (&[][..], "*", true),
            (&["team-b", "team-a"], "sandboxes,team-a,team-b", false),
            (&["sandboxes"], "sandboxes", false),
        ] {
            let settings = settings(watched);
            assert_eq!(scope(&settings), expected);
            assert!(settings.manages("sandboxes"));
            assert_eq!(settings.manages("elsewhere"), of_others, "{watched:?}");
        }
    }

    #[test]
    fn of_two_that_meet_the_younger_gives_way() {
        for (own, rival, expected) in [(10, 5, true), (5, 10, false), (5, 5, false)] {
            let (own, rival) = (release("own", "*", "1", own), release("pal", "*", "1", rival));
            assert_eq!(yields(&[own, rival.clone()], &rival, &settings(&[])), expected);
        }
        // Made in the same second: the name decides, for both of them alike.
        let (own, rival) = (release("own", "*", "1", 5), release("abc", "*", "1", 5));
        assert!(yields(&[own, rival.clone()], &rival, &settings(&[])));
    }
}
