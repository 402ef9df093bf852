//! What a client accepts of real servers, with an authority of its own and without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::io::{Read as _, Write as _};

use knack_trust::{AnswerError, CertificateRefusal, Roots, read_answer};

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
        (Flaw::Authority, Err(CertificateRefusal::Authority)),
    ] {
        let server = serve(flaw, |_, _| answer("204 No Content", "", b""));
        let named = Roots::default().with_pem(&server.authority).unwrap();
        assert_eq!(get(&server.url, &named).await, expected, "{flaw:?}");
        let other = serve(Flaw::None, |_, _| Vec::new()).authority;
        let other = Roots::default().with_pem(&other).unwrap();
        for without in [Roots::default(), other] {
            let message = get(&server.url, &without).await.unwrap_err();
            match flaw {
                // Its time is checked first.
                Flaw::Time => assert_eq!(message, CertificateRefusal::Time),
                Flaw::Authority => assert_eq!(message, CertificateRefusal::Authority),
                Flaw::None | Flaw::Name => {
                    assert_eq!(message, CertificateRefusal::Untrusted, "{flaw:?}, {without:?}");
                    assert!(message.to_string().contains("--ca-file"), "{message}");
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

/// What a server of these bytes gives within 8 bytes.
async fn read(answer: &'static str) -> Result<String, AnswerError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let client = Roots::default().http().no_proxy().build().unwrap();
    let mut response = client.get(url).send().await.unwrap();
    serving.join().unwrap();
    let body = read_answer(&mut response, 8).await?;
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_body_is_read_up_to_its_bound_whether_it_is_announced_or_not() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n";
    for whole in ["HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n12345678", chunked] {
        assert_eq!(read(whole).await.unwrap(), "12345678", "{whole}");
    }
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
    let longer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n";
    for answer in [announced, longer] {
        let refused = read(answer).await.unwrap_err();
        assert!(
            matches!(refused, AnswerError::TooLarge { limit: 8 }),
            "{answer}: {refused}"
        );
    }
    let broken = read("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n1234")
        .await
        .unwrap_err();
    assert!(
        matches!(&broken, AnswerError::Broken(_)) && !broken.to_string().contains("127.0.0.1"),
        "{broken}"
    );
}
