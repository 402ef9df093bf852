//! Sandbox images of several architectures, and of one, in a registry on loopback.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use knack_trust::Roots;
use serde_json::{Value, json};

use super::Parts;
use crate::builds::image::Reference;
use crate::builds::reach::guard_of;
use crate::builds::{Access, Credentials, ImageRegistry};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Documents by path, each with its media type.
type Documents = BTreeMap<String, (&'static str, String)>;

async fn answer(State(documents): State<Arc<Documents>>, request: Request) -> Response {
    match documents.get(request.uri().path()) {
        Some((kind, text)) => ([("content-type", *kind)], text.clone()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Adds a document; gives its digest.
fn add(documents: &mut Documents, folder: &str, kind: &'static str, document: &Value) -> String {
    let text = document.to_string();
    let digest = format!("sha256:{}", knack_skill::digest::sha256(&text));
    documents.insert(format!("/v2/team/base/{folder}/{digest}"), (kind, text));
    digest
}

/// Adds an image for an architecture; gives its entry in an index.
fn image(documents: &mut Documents, architecture: &str) -> Value {
    let config = json!({"os": "linux", "architecture": architecture, "rootfs": {"diff_ids": []}});
    let config = add(documents, "blobs", "application/octet-stream", &config);
    let manifest = json!({"config": {"digest": config}, "layers": []});
    let digest = add(documents, "manifests", MANIFEST, &manifest);
    json!({"mediaType": MANIFEST, "digest": digest, "platform": {"os": "linux", "architecture": architecture}})
}

/// Names a document by a tag.
fn tag(documents: &mut Documents, name: &str, kind: &'static str, text: String) {
    documents.insert(format!("/v2/team/base/manifests/{name}"), (kind, text));
}

#[tokio::test]
async fn an_image_of_two_architectures_is_read_for_that_of_the_builder() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut documents = Documents::new();
    // Builders of images put such entries beside the images.
    let attestation = json!({"digest": "sha256:0", "platform": {"os": "unknown", "architecture": "unknown"}});
    let windows = json!({"digest": "sha256:1", "platform": {"os": "windows", "architecture": "riscv64"}});
    let (arm, amd) = (image(&mut documents, "arm64"), image(&mut documents, "amd64"));
    let one = documents[&format!("/v2/team/base/manifests/{}", arm["digest"].as_str().unwrap())].clone();
    tag(&mut documents, "one", MANIFEST, one.1);
    let index = json!({"mediaType": INDEX, "manifests": [attestation, windows, arm, amd]});
    tag(&mut documents, "two", INDEX, index.to_string());
    let by_digest = add(&mut documents, "manifests", INDEX, &index);
    let lying = json!({"digest": arm["digest"], "platform": {"os": "linux", "architecture": "amd64"}});
    tag(
        &mut documents,
        "lying",
        INDEX,
        json!({"manifests": [lying]}).to_string(),
    );
    let long = json!({"os": "linux", "architecture": "x".repeat(5000)});
    tag(
        &mut documents,
        "long",
        INDEX,
        json!({"manifests": vec![json!({"platform": long}); 500]}).to_string(),
    );

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let server = Router::new().fallback(answer).with_state(Arc::new(documents));
    let server = tokio::spawn(async move { axum::serve(listener, server).await });
    let of = Reference::parse(&format!("{host}/team/base:two")).unwrap();
    let registry = ImageRegistry::new(&of, Access::Pull, &Credentials::default(), true, &Roots::default()).unwrap();

    for (version, architecture) in [
        ("two", "amd64"),
        ("two", "arm64"),
        (by_digest.as_str(), "amd64"),
        (by_digest.as_str(), "arm64"),
        ("one", "arm64"),
    ] {
        let parts = Parts::of(&registry, version, architecture).await.unwrap();
        assert_eq!(parts.config["architecture"], architecture, "{version}");
        assert_eq!(parts.kind, MANIFEST, "{version}");
    }
    for (version, architecture, has) in [
        ("two", "s390x", "it is for windows/riscv64, linux/arm64, linux/amd64"),
        ("two", "riscv64", "it is for windows/riscv64, linux/arm64, linux/amd64"),
        ("one", "amd64", "it is for linux/arm64"),
        ("lying", "amd64", "it is for linux/arm64"),
        ("long", "amd64", "it is for no platform that it names"),
    ] {
        let error = Parts::of(&registry, version, architecture).await.unwrap_err().0;
        let named = format!("registry {host}: the sandbox image {version} is not for linux/{architecture}");
        assert!(error.starts_with(&named) && error.ends_with(has), "{error}");
    }
    server.abort();
}

/// A registry on loopback that answers every manifest so.
async fn answering(answer: Response) -> (String, tokio::task::JoinHandle<()>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let server = Router::new().fallback(move || {
        let headers = headers.clone();
        async move { (status, headers) }
    });
    let server = tokio::spawn(async move { axum::serve(listener, server).await.unwrap() });
    (host, server)
}

/// Asks a registry behind the guard for a manifest, where an administrator has named these repositories.
async fn asked(host: &str, named: &[String]) -> String {
    let of = Reference::parse(&format!("{host}/team/base:1")).unwrap();
    let registry = ImageRegistry::new(&of, Access::Pull, &Credentials::default(), true, &Roots::default()).unwrap();
    let guard = guard_of(named.iter().map(String::as_str), true);
    let registry = match registry.guarded(guard, &Roots::default()) {
        Ok(registry) => registry,
        Err(error) => return format!("not asked: {error}"),
    };
    registry.manifest("1").await.unwrap_err().0
}

#[tokio::test]
async fn a_registry_that_a_tenant_names_is_at_a_public_address_or_named_by_an_administrator() {
    let not_found = || StatusCode::NOT_FOUND.into_response();
    let (host, server) = answering(not_found()).await;
    let port = host.rsplit_once(':').unwrap().1.to_owned();
    let (none, named): (&[String], &[String]) = (&[], &[format!("{host}/environments")]);
    let denied = "it is, or leads to, an address that is not public; an administrator can name the image's repository";
    for (of, named, expected) in [
        (host.clone(), none, format!("not asked: registry {host}: {denied}")),
        (
            format!("localhost:{port}"),
            none,
            format!("not asked: registry localhost:{port}: {denied}"),
        ),
        (
            "registry.team.svc".to_owned(),
            named,
            format!("not asked: registry registry.team.svc: {denied}"),
        ),
        (
            "169.254.169.254".to_owned(),
            named,
            format!("not asked: registry 169.254.169.254: {denied}"),
        ),
        (
            "127.0.0.1:1".to_owned(),
            named,
            "not asked: registry 127.0.0.1:1: it is, or leads to, a host that the chart names with another port"
                .to_owned(),
        ),
        (
            host.clone(),
            named,
            format!("registry {host}: manifest 1 of team/base: it answers 404"),
        ),
    ] {
        let message = asked(&of, named).await;
        assert!(message.starts_with(&expected), "{of} {named:?}: {message}");
    }
    server.abort();
}

#[tokio::test]
async fn what_such_a_registry_leads_to_is_judged_as_it_is() {
    // Another service of the inside, at a port of its own.
    let (inside, other) = answering(StatusCode::OK.into_response()).await;
    let redirect = (
        StatusCode::TEMPORARY_REDIRECT,
        [("location", format!("http://{inside}/"))],
    )
        .into_response();
    let challenge = format!("Bearer realm=\"http://{inside}/token\",service=\"x\"");
    let challenge = (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
    let by_name = (
        StatusCode::TEMPORARY_REDIRECT,
        [("location", "http://inside.team.svc/")],
    )
        .into_response();
    for (what, answer, part) in [
        ("a redirect", redirect, "a host that the chart names with another port"),
        (
            "a token server",
            challenge,
            "a host that the chart names with another port",
        ),
        ("a name of the cluster", by_name, "an address that is not public"),
    ] {
        let (host, server) = answering(answer).await;
        let message = asked(&host, &[format!("{host}/environments")]).await;
        assert!(
            message.starts_with(&format!("registry {host}: it is, or leads to, {part}")),
            "{what}: {message}"
        );
        assert!(!message.contains(&inside), "{what}: {message}");
        server.abort();
    }
    other.abort();
}
