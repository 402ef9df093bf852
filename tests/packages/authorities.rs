//! Indexes and a registry of images behind the certificate of a private authority: refused with what is wrong, and reached once
//! the authority is named.

use knack::builds::{Access, Credentials, ImageRegistry, Reference};
use knack::packages::BuildLimits;
use knack_packages::State;
use knack_trust::Roots;
use serde_json::json;

use super::index::{Index, wheel};
use super::npm_index::{NpmServer, lock, package};
use super::tls::{self, Flaw, TlsServer};
use super::{BuilderFixture, declared};

fn roots(of: &TlsServer) -> Roots {
    Roots::default().with_pem(&of.authority).unwrap()
}

/// Of an address without its path.
fn host(url: &str) -> String {
    url.replace("http://", "").split('/').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn uv_trusts_the_authority_that_is_named() {
    let plain = Index::serve(vec![wheel("good", "1.0", "", &[("good.py", "x = 1\n")])]).await;
    let server = tls::serve(Flaw::None, tls::forward(host(&plain.url)));
    let mut fixture = BuilderFixture::new(&format!("{}/simple", server.url));
    let files = [("requirements.txt", "good==1.0\n")];
    let refused = fixture.build(&files).await.unwrap_err();
    assert_eq!(refused.state, State::IndexUnreachable, "{refused}");
    assert!(refused.text.contains("--ca-file"), "{refused}");
    fixture.roots = roots(&server);
    let built = fixture.build(&files).await.unwrap();
    assert_eq!(built.about.packages, [("good".to_owned(), "1.0".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_of_node_packages_is_reached_by_the_authority_that_is_named() {
    let greet = package(&[("package.json", "{\"name\": \"greet\"}"), ("index.js", "")]);
    let plain = NpmServer::serve(&[("greet/-/greet-1.0.0.tgz", &greet)]).await;
    let server = tls::serve(Flaw::None, tls::forward(host(&plain.url)));
    let mut fixture = BuilderFixture::new("http://127.0.0.1:9/simple");
    fixture.npm = format!("{}/npm", server.url);
    let lock = lock(&[("node_modules/greet", "1.0.0", &greet, json!({}))]);
    let files = [("package-lock.json", lock.as_str())];
    let refused = fixture.build(&files).await.unwrap_err();
    assert_eq!(refused.state, State::IndexUnreachable, "{refused}");
    assert!(
        refused.text.contains("its certificate") && refused.text.contains("--ca-file"),
        "{refused}"
    );
    fixture.roots = roots(&server);
    let builder = fixture.builder(BuildLimits::default()).await;
    let built = builder.environment(&declared(&files), &|_| {}).await.unwrap();
    assert_eq!(built.about.node, [("greet".to_owned(), "1.0.0".to_owned())]);
}

#[tokio::test]
async fn the_registry_of_images_is_reached_by_the_authority_that_is_named() {
    let server = tls::serve(Flaw::None, |_, _| {
        tls::answer(
            "200 OK",
            "content-type: application/json\r\n",
            b"{\"schemaVersion\": 2}",
        )
    });
    let name = format!("{}/team/sandbox:1", server.url.replace("https://", ""));
    let image = Reference::parse(&name).unwrap();
    let ask = async |roots: &Roots| {
        let registry = ImageRegistry::new(&image, Access::Pull, &Credentials::default(), false, roots).unwrap();
        registry.manifest("1").await
    };
    let refused = ask(&Roots::default()).await.unwrap_err().to_string();
    assert!(
        refused.contains("its certificate") && refused.contains("--ca-file"),
        "{refused}"
    );
    let (manifest, _) = ask(&roots(&server)).await.unwrap();
    assert_eq!(manifest, json!({"schemaVersion": 2}));
}
