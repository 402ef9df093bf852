//! A registry that has no room, at each part of a push. A real one cannot be filled on demand.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use knack_packages::State as BuildState;
use knack_trust::Roots;
use serde_json::json;

use super::{Parts, push, refused};
use crate::builds::image::Reference;
use crate::builds::layer::Layer;
use crate::builds::{Access, Credentials, ImageRegistry};

/// The registry: what it refuses for want of room, and the calls that it had.
#[derive(Clone)]
struct FullRegistry {
    refuses: &'static str,
    calls: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(registry): State<FullRegistry>, request: Request) -> Response {
    let call = format!("{} {}", request.method(), request.uri().path());
    registry.calls.lock().unwrap().push(call.clone());
    if call.starts_with(registry.refuses) {
        let body = json!({"errors": [{"code": "TOOMANYBYTES", "message": "quota of token s3cret"}]});
        return (StatusCode::INSUFFICIENT_STORAGE, body.to_string()).into_response();
    }
    match request.method().as_str() {
        "HEAD" => StatusCode::NOT_FOUND.into_response(),
        "POST" => (StatusCode::ACCEPTED, [("location", "/v2/team/made/blobs/uploads/1")]).into_response(),
        _ => StatusCode::CREATED.into_response(),
    }
}

/// A layer, and the file that holds it.
fn layer() -> (Layer, tempfile::NamedTempFile) {
    let layer = Layer {
        digest: "sha256:layer".to_owned(),
        diff_id: "sha256:raw".to_owned(),
        size: 4,
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "gzip").unwrap();
    (layer, file)
}

#[tokio::test]
async fn a_registry_without_room_is_named_and_gets_no_manifest_of_what_is_missing() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (refuses, what) in [
        (
            "POST /v2/team/made/blobs/uploads/",
            "an upload location for sha256:layer",
        ),
        ("PUT /v2/team/made/blobs/uploads/1", "an upload"),
        ("PUT /v2/team/made/manifests/", "the manifest"),
    ] {
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let full = FullRegistry {
            refuses,
            calls: Arc::clone(&calls),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let server = Router::new().fallback(answer).with_state(full);
        let server = tokio::spawn(async move { axum::serve(listener, server).await });

        let to = Reference::parse(&format!("{host}/team/made:dev")).unwrap();
        let to = ImageRegistry::new(&to, Access::PullPush, &Credentials::default(), true, &Roots::default()).unwrap();
        let base = Parts {
            manifest: json!({"layers": [], "config": {}}),
            kind: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            config: json!({"rootfs": {"diff_ids": []}}),
        };
        let (layer, file) = layer();

        let error = refused(push(&base, &to, &to, &layer, file.path()).await.unwrap_err());
        assert_eq!(error.state, BuildState::RegistryRefused);
        let text = error.text;
        assert!(
            text.contains(&format!("registry {host}: {what} of team/made: it answers 507"))
                && text.contains("TOOMANYBYTES"),
            "{text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
        let calls = calls.lock().unwrap().clone();
        let (refused, before) = calls.split_last().unwrap();
        assert!(refused.starts_with(refuses), "nothing follows the refusal: {calls:?}");
        assert!(before.iter().all(|call| !call.contains("/manifests/")), "{calls:?}");
        server.abort();
    }
}

/// A registry with a token server of its own: a token is good for the scopes that were asked for and that the account has.
#[derive(Clone)]
struct TokenRegistry {
    host: Arc<Mutex<String>>,
    /// Whether the account may read the base's repository.
    reads_base: bool,
    /// Answers that come first, by the begin of the call.
    failures: Arc<Mutex<Vec<(&'static str, StatusCode)>>>,
    calls: Arc<Mutex<Vec<String>>>,
}

async fn answer_with_tokens(State(registry): State<TokenRegistry>, request: Request) -> Response {
    let call = format!("{} {}", request.method(), request.uri());
    registry.calls.lock().unwrap().push(call.clone());
    let failure = {
        let mut failures = registry.failures.lock().unwrap();
        let at = failures.iter().position(|(begin, _)| call.starts_with(begin));
        at.map(|at| failures.remove(at).1)
    };
    if let Some(failure) = failure {
        return (failure, [("retry-after", "0")]).into_response();
    }
    let url = reqwest::Url::parse(&format!("http://registry{}", request.uri())).unwrap();
    let query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    if request.uri().path() == "/token" {
        let scopes = query
            .iter()
            .filter(|(name, _)| name == "scope")
            .map(|(_, scope)| scope.as_str());
        let given: Vec<&str> = scopes
            .filter(|scope| registry.reads_base || !scope.contains("team/base"))
            .collect();
        return axum::Json(json!({"token": given.join("_").replace([':', ',', '/'], "-")})).into_response();
    }
    let mounted = query
        .iter()
        .find(|(name, _)| name == "from")
        .map(|(_, from)| from.as_str());
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let repository = if path.starts_with("/v2/team/base/") {
        "team/base"
    } else {
        "team/made"
    };
    let mut needed = vec![format!(
        "repository:{repository}:{}",
        if method == "GET" || method == "HEAD" {
            "pull"
        } else {
            "pull,push"
        }
    )];
    needed.extend(mounted.map(|from| format!("repository:{from}:pull")));
    let token = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let is_good = needed
        .iter()
        .all(|scope| token.contains(&scope.replace([':', ',', '/'], "-")));
    // Blobs of the base are public.
    let is_public = repository == "team/base" && method == "GET";
    if !is_good && !is_public {
        let challenge = format!(
            "Bearer realm=\"http://{}/token\",service=\"test\",scope=\"{}\"",
            registry.host.lock().unwrap(),
            needed.join(" ")
        );
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    }
    match method.as_str() {
        "HEAD" => StatusCode::NOT_FOUND.into_response(),
        "GET" => "below".into_response(),
        "POST" if mounted.is_some() => StatusCode::CREATED.into_response(),
        "POST" => (StatusCode::ACCEPTED, [("location", "/v2/team/made/blobs/uploads/1")]).into_response(),
        _ => StatusCode::CREATED.into_response(),
    }
}

/// Pushes an image of one layer with another one on top; the calls, and how it ended.
async fn pushed(reads_base: bool, failures: &[(&'static str, StatusCode)]) -> (Vec<String>, Result<String, String>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let registry = TokenRegistry {
        host: Arc::new(Mutex::new(host.clone())),
        reads_base,
        failures: Arc::new(Mutex::new(failures.to_vec())),
        calls: Arc::default(),
    };
    let calls = Arc::clone(&registry.calls);
    let server = Router::new().fallback(answer_with_tokens).with_state(registry);
    let server = tokio::spawn(async move { axum::serve(listener, server).await });
    let open = |name: &str, access| {
        let of = Reference::parse(&format!("{host}/team/{name}:dev")).unwrap();
        ImageRegistry::new(&of, access, &Credentials::default(), true, &Roots::default()).unwrap()
    };
    let (from, to) = (open("base", Access::Pull), open("made", Access::PullPush));
    let base = Parts {
        manifest: json!({"layers": [{"digest": "sha256:below", "size": 5}], "config": {}}),
        kind: "application/vnd.oci.image.manifest.v1+json".to_owned(),
        config: json!({"rootfs": {"diff_ids": ["sha256:raw"]}}),
    };
    let (layer, file) = layer();
    let ended = push(&base, &from, &to, &layer, file.path()).await;
    server.abort();
    let calls = calls.lock().unwrap().clone();
    (calls, ended.map_err(|error| error.0))
}

#[tokio::test]
async fn a_layer_of_another_repository_is_mounted_with_a_token_for_both_or_copied() {
    for (reads_base, copies) in [(true, 0), (false, 1)] {
        let (calls, ended) = pushed(reads_base, &[]).await;
        assert!(ended.is_ok(), "{ended:?}: {calls:#?}");
        let copied = calls
            .iter()
            .filter(|call| call.starts_with("GET /v2/team/base/blobs/sha256:below"));
        assert_eq!(copied.count(), copies, "{calls:#?}");
    }
}

#[tokio::test]
async fn a_failure_that_passes_is_tried_again_and_others_are_not() {
    for call in [
        "HEAD /v2/team/made/blobs/sha256:below",
        "GET /token",
        "POST /v2/team/made/blobs/uploads/",
        "PUT /v2/team/made/blobs/uploads/1",
        "PUT /v2/team/made/manifests/",
    ] {
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
            let (calls, ended) = pushed(true, &[(call, status), (call, status)]).await;
            assert!(ended.is_ok(), "{call}: {ended:?}: {calls:#?}");
        }
        if call != "POST /v2/team/made/blobs/uploads/" {
            let (_, ended) = pushed(true, &[(call, StatusCode::SERVICE_UNAVAILABLE); 3]).await;
            assert!(ended.unwrap_err().contains("503"), "{call}: three are too many");
            let (_, ended) = pushed(true, &[(call, StatusCode::FORBIDDEN)]).await;
            assert!(ended.unwrap_err().contains("403"), "{call}: tried again in vain");
        }
    }
    // The token server asks for no pause; own ones are six seconds. A machine that is busy with other things only adds to the time.
    let mut best = std::time::Duration::MAX;
    for _ in 0..5 {
        let begun = std::time::Instant::now();
        let (_, ended) = pushed(true, &[("GET /token", StatusCode::TOO_MANY_REQUESTS); 2]).await;
        assert!(ended.is_ok(), "{ended:?}");
        best = best.min(begun.elapsed());
        if best.as_secs() < 5 {
            break;
        }
    }
    assert!(best.as_secs() < 5, "{best:?}");
    // A token may end during an upload.
    let (_, ended) = pushed(true, &[("PUT /v2/team/made/blobs/uploads/1", StatusCode::UNAUTHORIZED)]).await;
    assert!(ended.is_ok(), "{ended:?}");
}
