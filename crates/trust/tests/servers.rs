//! What a client accepts of real servers, with an authority of its own and without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use knack_trust::{CertificateRefusal, Roots};

#[path = "../../../tests/support/tls.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod tls;

use tls::{Flaw, answer, serve};

async fn get(url: &str, roots: &Roots) -> Result<u16, CertificateRefusal> {
    let client = roots.http().no_proxy().build().unwrap();
    match client.get(url).send().await {
        Ok(response) => Ok(response.status().as_u16()),
        Err(error) => Err(CertificateRefusal::of(&error).unwrap()),
    }
}

#[tokio::test]
async fn an_authority_is_trusted_when_it_is_named_and_no_other_check_is_left_out() {
    for (flaw, expected) in [
        (Flaw::None, Ok(204)),
        (Flaw::Name, Err(CertificateRefusal::Name)),
        (Flaw::Time, Err(CertificateRefusal::Time)),
    ] {
        let server = serve(flaw, |_, _| answer("204 No Content", "", b""));
        let named = Roots::default().with_pem(&server.authority).unwrap();
        assert_eq!(get(&server.url, &named).await, expected, "{flaw:?}");
        let other = serve(Flaw::None, |_, _| Vec::new()).authority;
        let other = Roots::default().with_pem(&other).unwrap();
        for without in [Roots::default(), other] {
            let told = get(&server.url, &without).await.unwrap_err();
            match flaw {
                // Its time is looked at first.
                Flaw::Time => assert_eq!(told, CertificateRefusal::Time),
                Flaw::None | Flaw::Name => {
                    assert_eq!(told, CertificateRefusal::Untrusted, "{flaw:?}, {without:?}");
                    assert!(told.to_string().contains("--ca-file"), "{told}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_error_about_something_else_is_no_refusal() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Roots::default().http().no_proxy().build().unwrap();
    let error = client.get("https://127.0.0.1:1").send().await.unwrap_err();
    assert_eq!(CertificateRefusal::of(&error), None);
}
