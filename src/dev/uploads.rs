//! Uploaded skills in `knack dev`: the APIs over a folder, and each caller's own skills beside those from files.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Method, Response, Uri};
use knack_gateway::Gateway;
use knack_gateway::ad_hoc::AdHocRuns;
use knack_gateway::caller;
use knack_gateway::catalog::{PackageNames, Snapshot};
use knack_gateway::run_history::RunHistory;
use knack_gateway::skill_calls::{SkillCalls, SkillPaces};
use knack_gateway::uploads::Uploads;
use knack_registry::{
    ApiCall, ApiRequest, Catalogs, FolderHistory, FolderStore, HistorySettings, Mode, OmniRoute, Owner, Reader, Record,
    Registry, load_stored, route,
};
use knack_skill::model::Skill;
use knack_wire::history::HistorySecret;

use super::history::NotedRuns;
use super::judged::ReadySkills;
use crate::cli::terminal;
use crate::sources::archive::unpack_upload;

/// Callers whose catalogs are kept: one person has a few keys. Another one's is made again with its next request.
const CALLERS_MAX: usize = 64;

/// Uploaded skills of a folder.
#[derive(Debug)]
pub(super) struct DevUploads {
    store: Arc<FolderStore>,
    registry: Registry,
    history: Option<Arc<FolderHistory>>,
    calls: SkillCalls,
    /// The gateway that runs tools for programs; it owns this.
    gateway: OnceLock<Weak<Gateway>>,
    secret: HistorySecret,
    packages: PackageNames,
    judged: Arc<ReadySkills>,
    /// The catalogs of callers; locked while one is made, so that it is made once.
    made: tokio::sync::Mutex<HashMap<Owner, CallerCatalog>>,
    /// Versions that cannot be served, which are logged once.
    reported: Mutex<Vec<String>>,
}

/// The catalog of one caller.
#[derive(Debug, Clone)]
struct CallerCatalog {
    /// The state of the store that it was made of.
    changes: u64,
    /// The skills from files.
    base: Arc<Snapshot>,
    /// The caller's, by the id of the version.
    skills: Versions,
    snapshot: Arc<Snapshot>,
}

/// Versions by id.
type Versions = BTreeMap<String, (VersionNames, Arc<Skill>)>;

/// The part of a version's record that catalogs use: the references under which it is named, and its mode.
type VersionNames = (Vec<String>, Option<Mode>);

impl DevUploads {
    /// Opens a folder, with the history of so many days. `packages` returns the packages of a skill's runs.
    pub(super) fn open(
        (root, history_days): (&Path, u32),
        packages: PackageNames,
        judged: Arc<ReadySkills>,
        catalogs: Catalogs,
    ) -> std::io::Result<Self> {
        let opened = FolderStore::open(root)?;
        for broken in &opened.broken {
            terminal::line(&format!("an uploaded skill is left out: {broken}"));
        }
        let store = Arc::new(opened.store);
        let history = open_history(root, history_days)?;
        let reader = Arc::new(Reader::new(unpack_upload));
        let registry = Registry::new(Arc::clone(&store) as Arc<_>, &reader).with_catalogs(catalogs);
        Ok(Self {
            registry: match &history {
                Some(history) => registry.with_history(Arc::clone(history) as Arc<_>),
                None => registry,
            },
            store,
            history,
            calls: SkillCalls::new(SkillPaces::FOLDER),
            gateway: OnceLock::new(),
            secret: HistorySecret::new(opened.secret),
            packages,
            judged,
            made: tokio::sync::Mutex::default(),
            reported: Mutex::default(),
        })
    }

    /// The key of callers' hashes, which the folder keeps: who uploads and who runs are the same.
    pub(super) fn secret(&self) -> HistorySecret {
        self.secret.clone()
    }

    /// Runs tools for programs by a gateway, the first that is named.
    pub(super) fn run_by(&self, gateway: &Arc<Gateway>) {
        let _ = self.gateway.set(Arc::downgrade(gateway));
    }

    /// Where runs are noted, if a history is kept.
    pub(super) fn runs(&self) -> Option<Arc<dyn RunHistory>> {
        let history = Arc::clone(self.history.as_ref()?);
        Some(Arc::new(NotedRuns(history)))
    }

    /// Waits until what was noted is on the disk.
    pub(super) async fn flush(&self) {
        if let Some(history) = &self.history {
            history.flush().await;
        }
    }

    /// The sender of a request; `None` without a credential.
    fn owner(&self, parts: &Parts) -> Option<Owner> {
        caller::has_credential(&parts.headers, &parts.uri)
            .then(|| Owner::from(caller::identify(&self.secret, &parts.headers, &parts.uri).bucket()))
    }

    async fn respond(&self, call: ApiCall, parts: &Parts, body: Bytes, base: &Arc<Snapshot>) -> Response<Bytes> {
        let owner = self.owner(parts);
        // Without one the answer is 401, which costs nothing.
        let address = caller::unchecked_address(parts);
        let admitted = owner
            .as_ref()
            .map(|owner| self.calls.admit(&call, &parts.method, owner.as_str(), address));
        let _admitted = match admitted.transpose() {
            Ok(admitted) => admitted,
            Err(refused) => return *refused,
        };
        let asked = ApiRequest {
            call,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers.clone(),
            body,
        };
        if asked.call == ApiCall::OmniRoute(OmniRoute::Execute) {
            let runs = AdHocRuns {
                gateway: self.gateway.get().and_then(Weak::upgrade),
                parts,
                base,
            };
            return self.registry.execute(owner.as_ref(), asked, &base.skills, &runs).await;
        }
        self.registry.answer(owner.as_ref(), asked, &base.skills).await
    }

    pub(super) async fn served(&self, owner: Owner, base: Arc<Snapshot>) -> Arc<Snapshot> {
        let mut made = self.made.lock().await;
        let changes = self.store.changes();
        let last = made.get(&owner);
        if let Some(last) = last.filter(|last| last.changes == changes && Arc::ptr_eq(&last.base, &base)) {
            return Arc::clone(&last.snapshot);
        }
        let records = self.store.skills_of(&owner);
        if records.is_empty() {
            if made.remove(&owner).is_some() {
                self.judge(&made);
            }
            return base;
        }
        let (store, packages, kept) = (
            Arc::clone(&self.store),
            self.packages,
            last.map(|last| last.skills.clone()).unwrap_or_default(),
        );
        let from = Arc::clone(&base);
        let work = tokio::task::spawn_blocking(move || make(&store, &records, &kept, packages, from, changes));
        let Ok((now, failed)) = work.await else { return base };
        self.report(failed);
        let snapshot = Arc::clone(&now.snapshot);
        if made.len() >= CALLERS_MAX
            && !made.contains_key(&owner)
            && let Some(other) = made.keys().next().cloned()
        {
            made.remove(&other);
        }
        made.insert(owner, now);
        self.judge(&made);
        snapshot
    }

    fn judge(&self, made: &HashMap<Owner, CallerCatalog>) {
        let skills = made.values().flat_map(|made| made.skills.values());
        self.judged
            .uploads(skills.map(|(_, skill)| Arc::clone(skill)).collect());
    }

    fn report(&self, failed: Vec<String>) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        for text in &failed {
            if !reported.contains(text) {
                terminal::line(text);
            }
        }
        *reported = failed;
    }
}

/// Reads what is new and puts all of it beside the skills from files. The texts name versions that cannot be served.
fn make(
    store: &FolderStore,
    records: &[Arc<Record>],
    kept: &Versions,
    packages: PackageNames,
    base: Arc<Snapshot>,
    changes: u64,
) -> (CallerCatalog, Vec<String>) {
    let (mut skills, mut failed) = (BTreeMap::new(), Vec::new());
    // The default version of each first: it keeps the name.
    let mut ordered = Vec::new();
    for record in records {
        for version in &record.versions {
            let named = (record.references(version), record.mode_of(version));
            if let Some(known) = kept.get(&version.id).filter(|known| known.0 == named) {
                skills.insert(version.id.clone(), known.clone());
            } else {
                let files = store.files(record, version.number).map_err(|error| error.to_string());
                match files.and_then(|files| load_stored(record, version, files)) {
                    Ok(mut skill) => {
                        skill.packages = packages(&skill);
                        skills.insert(version.id.clone(), (named, Arc::new(skill)));
                    }
                    Err(error) => failed.push(format!(
                        "uploaded skill {}, version {}, is not served: {error}",
                        record.name, version.number
                    )),
                }
            }
            if let Some((_, skill)) = skills.get(&version.id) {
                ordered.push((record.default != Some(version.number), Arc::clone(skill)));
            }
        }
    }
    ordered.sort_by_key(|(is_other, _)| *is_other);
    let ordered: Vec<Arc<Skill>> = ordered.into_iter().map(|(_, skill)| skill).collect();
    let snapshot = Arc::new(base.with_skills(&ordered));
    let made = CallerCatalog {
        changes,
        base,
        skills,
        snapshot,
    };
    (made, failed)
}

impl Uploads for DevUploads {
    fn takes(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        route(method, uri.path(), uri.query(), headers).is_some()
    }

    fn is_by_credential(&self) -> bool {
        true
    }

    fn answer<'a>(&'a self, parts: &'a Parts, body: Bytes, base: Arc<Snapshot>) -> BoxFuture<'a, Response<Body>> {
        async move {
            let Some(call) = route(&parts.method, parts.uri.path(), parts.uri.query(), &parts.headers) else {
                return Response::new(Body::empty());
            };
            let response = self.respond(call, parts, body, &base).await;
            terminal::line(&format!(
                "{} skills api | {} {}",
                response.status().as_u16(),
                parts.method,
                parts.uri.path()
            ));
            response.map(Body::from)
        }
        .boxed()
    }

    fn snapshot<'a>(&'a self, parts: &'a Parts, base: Arc<Snapshot>) -> BoxFuture<'a, Arc<Snapshot>> {
        async move {
            match self.owner(parts) {
                Some(owner) => self.served(owner, base).await,
                None => base,
            }
        }
        .boxed()
    }
}

/// The history of so many days; of none, nothing is kept, nor what was kept.
fn open_history(root: &Path, days: u32) -> std::io::Result<Option<Arc<FolderHistory>>> {
    if days == 0 {
        return FolderHistory::remove(root).map(|()| None);
    }
    let opened = FolderHistory::open(root, HistorySettings::of_days(days), terminal::line)?;
    if opened.broken > 0 {
        terminal::line(&format!(
            "history: {} lines cannot be read and are left out",
            opened.broken
        ));
    }
    Ok(Some(Arc::new(opened.history)))
}
