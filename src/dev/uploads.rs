//! Uploaded skills in `knack dev`: the APIs over a folder, and what they do.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Method, Response, Uri};
use knack_gateway::Gateway;
use knack_gateway::callers::caller;
use knack_gateway::catalog::Snapshot;
use knack_gateway::http_server::request_id::RequestId;
use knack_gateway::runs::ad_hoc::AdHocRuns;
use knack_gateway::runs::run_history::RunHistory;
use knack_gateway::skills_api::skill_calls::{SkillCalls, SkillPaces};
use knack_gateway::skills_api::uploads::Uploads;
use knack_registry::{
    ApiCall, ApiRequest, Catalogs, FolderHistory, FolderStore, HistorySettings, OmniRoute, Owner, Reader, Registry,
    route,
};
use knack_wire::history::HistorySecret;

use super::caller_catalogs::{CallerCatalogs, UploadRuntime};
use super::history::NotedRuns;
use super::ready_skills::ReadySkills;
use crate::cli::terminal;
use crate::sources::archive::unpack_upload;

/// Uploaded skills of a folder.
#[derive(Debug)]
pub(super) struct DevUploads {
    registry: Registry,
    history: Option<Arc<FolderHistory>>,
    calls: SkillCalls,
    /// The gateway that runs tools for programs; it owns this.
    gateway: OnceLock<Weak<Gateway>>,
    secret: HistorySecret,
    catalogs: CallerCatalogs,
}

impl DevUploads {
    /// Opens a folder, with the history of so many days.
    pub(super) fn open(
        root: &Path,
        history_days: u32,
        runtime: UploadRuntime,
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
            history,
            calls: SkillCalls::new(SkillPaces::FOLDER),
            gateway: OnceLock::new(),
            secret: HistorySecret::new(opened.secret),
            catalogs: CallerCatalogs::new(store, runtime, judged),
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
        let request_id = RequestId::of(&parts.extensions);
        let owner = self.owner(parts);
        // Without one the answer is 401, which costs nothing.
        let address = caller::unchecked_address(parts);
        let admitted = owner.as_ref().map(|owner| {
            self.calls
                .admit(&call, &parts.method, &owner.text(), address, &request_id)
        });
        let _admitted = match admitted.transpose() {
            Ok(admitted) => admitted,
            Err(refused) => return *refused,
        };
        let asked = ApiRequest {
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers.clone(),
            body,
            request_id,
        };
        if call == ApiCall::OmniRoute(OmniRoute::Execute) {
            let runs = AdHocRuns {
                gateway: self.gateway.get().and_then(Weak::upgrade),
                parts,
                base,
            };
            return self.registry.execute(owner.as_ref(), &asked, &base.skills, &runs).await;
        }
        self.registry.answer(owner.as_ref(), call, &asked, &base.skills).await
    }
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
            self.respond(call, parts, body, &base).await.map(Body::from)
        }
        .boxed()
    }

    fn snapshot<'a>(&'a self, parts: &'a Parts, base: Arc<Snapshot>) -> BoxFuture<'a, Arc<Snapshot>> {
        // Usually nobody has uploaded anything: who asks need not be known, which costs a request 14,000 instructions.
        if self.catalogs.are_empty() {
            return std::future::ready(base).boxed();
        }
        async move {
            match self.owner(parts) {
                Some(owner) => self.catalogs.served(owner, base).await,
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
