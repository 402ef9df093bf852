//! An API server in memory for tests: Skills and ConfigMaps, with resource versions, owners, a number of writes after which it
//! answers nothing any more, and one whose answer is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode, Uri};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::fixture::{self, done, list};

/// Kind, namespace, name.
type Key = (String, String, String);

/// What it holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    version: u64,
    pub(super) objects: BTreeMap<Key, Value>,
    /// Writes that it still takes; `None`: all.
    pub(super) writes_left: Option<usize>,
    /// Writes until one that is done and answered with this status all the same.
    pub(super) lost: Option<(usize, u16)>,
    /// The user who may do nothing.
    pub(super) refused: Option<String>,
    /// Names of objects of which a policy denies every write.
    pub(super) denied: BTreeSet<String>,
    /// Writes of versions' objects before which the controller writes their status.
    pub(super) status_writes: usize,
    /// Writes that it took.
    pub(super) writes: usize,
}

/// The API server.
#[derive(Debug, Clone, Default)]
pub(super) struct Fake(pub(super) Arc<Mutex<Held>>);

impl Fake {
    /// A client of it.
    pub(super) async fn client(&self) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap()
    }

    /// Objects of a kind, by name.
    pub(super) fn all(&self, kind: &str) -> BTreeMap<String, Value> {
        let state = self.0.lock().unwrap();
        let of_kind = state.objects.iter().filter(|(key, _)| key.0 == kind);
        of_kind.map(|(key, value)| (key.2.clone(), value.clone())).collect()
    }
}

async fn answer(
    State(fake): State<Fake>,
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    let path: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let rest = path.get(if path[0] == "api" { 2 } else { 3 }..).unwrap_or_default();
    let (namespace, kind, name) = match rest {
        ["namespaces", namespace, kind] => (Some(*namespace), *kind, None),
        ["namespaces", namespace, kind, name] => (Some(*namespace), *kind, Some(*name)),
        [kind] => (None, *kind, None),
        _ => return failed(StatusCode::NOT_FOUND, "no such path"),
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if kind == "subjectaccessreviews" {
        // Everybody else may do everything.
        let refused = fake.0.lock().unwrap().refused.clone();
        let is_allowed = refused.is_none_or(|refused| body["spec"]["user"] != refused);
        let reviewed = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": body["spec"], "status": {"allowed": is_allowed}});
        return axum::Json(reviewed).into_response();
    }
    if kind == "tokenreviews" {
        // The signature of a token is the name of its user.
        let user = body["spec"]["token"].as_str().unwrap().rsplit('.').next().unwrap();
        let user = json!({"username": format!("system:serviceaccount:team:{user}"), "uid": user});
        let reviewed = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
            "spec": body["spec"], "status": {"authenticated": true, "audiences": ["knack"], "user": user}});
        return axum::Json(reviewed).into_response();
    }
    let mut state = fake.0.lock().unwrap();
    let is_write = method != Method::GET;
    if state.writes_left == Some(0) {
        return failed(StatusCode::INTERNAL_SERVER_ERROR, "it is gone");
    }
    let named = name.or_else(|| body["metadata"]["name"].as_str());
    if is_write && named.is_some_and(|named| state.denied.contains(named)) {
        return failed(StatusCode::UNPROCESSABLE_ENTITY, "denied by a policy");
    }
    let mut lost = None;
    if is_write {
        state.writes_left = state.writes_left.map(|left| left - 1);
        state.writes += 1;
        (state.lost, lost) = match state.lost {
            Some((0, status)) => (None, Some(status)),
            more => (more.map(|(writes, status)| (writes - 1, status)), None),
        };
    }
    let key = |name: &str| {
        (
            kind.to_owned(),
            namespace.unwrap_or_default().to_owned(),
            name.to_owned(),
        )
    };
    if is_write && let Some(name) = name.filter(|name| kind == "skills" && name.contains("-v")) {
        state.write_status(&key(name));
    }
    let done = match (method.as_str(), name) {
        ("GET", Some(name)) => found(state.objects.get(&key(name)).cloned()),
        ("GET", None) => state.list(kind, namespace, &query),
        ("POST", None) => state.create(key(body["metadata"]["name"].as_str().unwrap()), body, &query),
        ("PUT", Some(name)) => state.replace(&key(name), body),
        ("PATCH", Some(name)) => state.patch(&key(name), &body),
        ("DELETE", Some(name)) => state.delete(&key(name), &body),
        _ => failed(StatusCode::METHOD_NOT_ALLOWED, "not here"),
    };
    lost.map_or(done, |status| {
        failed(StatusCode::from_u16(status).unwrap(), "the answer is lost")
    })
}

impl Held {
    fn list(&self, kind: &str, namespace: Option<&str>, query: &BTreeMap<String, String>) -> Response {
        let selector = query.get("labelSelector").cloned().unwrap_or_default();
        let selected = |object: &Value| match selector.split_once('=') {
            _ if selector.is_empty() => true,
            Some((key, value)) => object["metadata"]["labels"][key] == value,
            None => object["metadata"]["labels"].get(&selector).is_some(),
        };
        let objects = self.objects.iter();
        let objects = objects.filter(|(key, _)| key.0 == kind && namespace.is_none_or(|wanted| wanted == key.1));
        let items = objects.map(|(_, object)| object).filter(|object| selected(object));
        list("List", &items.cloned().collect::<Vec<_>>())
    }

    fn create(&mut self, key: Key, mut object: Value, query: &BTreeMap<String, String>) -> Response {
        if self.objects.contains_key(&key) {
            return failed(StatusCode::CONFLICT, "already exists");
        }
        self.version += 1;
        let meta = &mut object["metadata"];
        meta["namespace"] = key.1.clone().into();
        meta["uid"] = uuid::Uuid::new_v4().to_string().into();
        meta["resourceVersion"] = self.version.to_string().into();
        meta["creationTimestamp"] = Timestamp::now().to_string().into();
        meta["managedFields"] = json!([{"manager": query.get("fieldManager"), "operation": "Update",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
        self.objects.insert(key, object.clone());
        axum::Json(object).into_response()
    }

    fn replace(&mut self, key: &Key, mut object: Value) -> Response {
        let Some(there) = self.objects.get(key) else {
            return found(None);
        };
        if there["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return failed(StatusCode::CONFLICT, "it has changed");
        }
        self.version += 1;
        object["metadata"]["managedFields"] = there["metadata"]["managedFields"].clone();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(key.clone(), object.clone());
        axum::Json(object).into_response()
    }

    fn write_status(&mut self, key: &Key) {
        let Some(left) = self.status_writes.checked_sub(1) else {
            return;
        };
        if let Some(there) = self.objects.get_mut(key) {
            self.status_writes = left;
            self.version += 1;
            there["status"] = json!({"observedGeneration": self.version});
            there["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
    }

    fn patch(&mut self, key: &Key, patch: &Value) -> Response {
        self.version += 1;
        let version = self.version.to_string();
        let Some(there) = self.objects.get_mut(key) else {
            return found(None);
        };
        there["metadata"]["ownerReferences"] = patch["metadata"]["ownerReferences"].clone();
        there["metadata"]["resourceVersion"] = version.into();
        axum::Json(there.clone()).into_response()
    }

    fn delete(&mut self, key: &Key, options: &Value) -> Response {
        let Some(there) = self.objects.get(key) else {
            return found(None);
        };
        let meta = there["metadata"].clone();
        for precondition in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][precondition];
            if !wanted.is_null() && *wanted != meta[precondition] {
                return failed(StatusCode::CONFLICT, "it is another one");
            }
        }
        self.objects.remove(key);
        // What garbage collection does.
        self.objects
            .retain(|_, object| object["metadata"]["ownerReferences"][0]["uid"] != meta["uid"]);
        done()
    }
}

fn found(object: Option<Value>) -> Response {
    object.map_or_else(
        || failed(StatusCode::NOT_FOUND, "not found"),
        |object| axum::Json(object).into_response(),
    )
}

fn failed(status: StatusCode, message: &str) -> Response {
    fixture::failed(status.as_u16(), "Test", message)
}
