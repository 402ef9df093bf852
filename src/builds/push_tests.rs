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
use crate::builds::{Credentials, Registry};

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
        let to = Registry::new(&to, &Credentials::default(), true, &Roots::default()).unwrap();
        let base = Parts {
            manifest: json!({"layers": [], "config": {}}),
            kind: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            config: json!({"rootfs": {"diff_ids": []}}),
        };
        let layer = Layer {
            digest: "sha256:layer".to_owned(),
            diff_id: "sha256:raw".to_owned(),
            size: 4,
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "gzip").unwrap();

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
