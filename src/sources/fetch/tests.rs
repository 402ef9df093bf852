//! Against a small server on loopback, which has to be allowed first.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

/// Serves the paths of a table on loopback until the test ends; returns `http://127.0.0.1:port`.
fn serve(table: Vec<(&'static str, String)>) -> String {
    // The first TLS user of a process has to choose; another test may have.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 2048];
            let length = stream.read(&mut request).unwrap_or(0);
            let head = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let answer = table.iter().find(|(known, _)| *known == path);
            let answer = answer.map_or("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", |(_, answer)| {
                answer
            });
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    base
}

fn answer(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

fn digest(body: &str) -> String {
    let hex = knack_skill::digest::sha256(body);
    format!("sha256:{hex}")
}

async fn fetch(url: String, expected: &str, allowed: &[&str]) -> Result<Vec<u8>, SourceError> {
    let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
    let source = ArchiveSource {
        url,
        digest: digest(expected),
    };
    let fetched = Fetcher::new(allowed, &Roots::default()).unwrap().fetch(&source).await?;
    Ok(fetched.bytes.into())
}

/// The host of a mirror has other services, too, which a mirror must not lead to.
#[tokio::test]
async fn a_named_host_leads_to_no_other_port_of_it() {
    let other = serve(vec![("/a", answer("secret"))]);
    let mirror = serve(vec![
        ("/a", answer("content")),
        ("/same", moved("/a")),
        ("/other", moved(&format!("{other}/a"))),
    ]);
    let guard = Guard::new(Vec::new()).with_hosts_of([&Url::parse(&mirror).unwrap()]);
    let fetcher = Fetcher::guarded(guard, &Roots::default()).unwrap();
    assert_eq!(fetcher.get(&format!("{mirror}/same")).await.unwrap().bytes, "content");
    let error = fetcher.get(&format!("{mirror}/other")).await.unwrap_err();
    assert_eq!(error.cause, Cause::AddressDenied, "{error}");
    assert!(error.to_string().contains("not configured for its host"), "{error}");
}

#[tokio::test]
async fn what_is_fetched_is_what_the_digest_says() {
    let base = serve(vec![
        ("/a", answer("content")),
        ("/once", moved("/a")),
        ("/loop", moved("/loop")),
        ("/metadata", moved("http://169.254.169.254/latest/meta-data")),
        ("/file", moved("file:///etc/passwd")),
        ("/credentials", moved("http://me:key@example.com/")),
        ("/inside", moved("http://10.0.0.1/")),
        (
            "/sick",
            "HTTP/1.1 503 Sick\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        ),
        (
            "/big",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\nconnection: close\r\n\r\n".to_owned(),
        ),
    ]);
    let loopback = ["127.0.0.0/8"];
    assert_eq!(
        fetch(format!("{base}/a"), "content", &loopback).await.unwrap(),
        b"content"
    );
    assert_eq!(
        fetch(format!("{base}/once"), "content", &loopback).await.unwrap(),
        b"content"
    );
    for (path, cause) in [
        ("/a", Cause::DigestMismatch),
        ("/none", Cause::NotFound),
        ("/sick", Cause::Unavailable),
        ("/loop", Cause::Invalid),
        ("/big", Cause::TooLarge),
        ("/metadata", Cause::AddressDenied),
        ("/inside", Cause::AddressDenied),
        ("/file", Cause::Invalid),
        ("/credentials", Cause::Invalid),
    ] {
        let error = fetch(format!("{base}{path}"), "other", &loopback).await.unwrap_err();
        assert_eq!(error.cause, cause, "{path}: {error}");
    }
}

#[tokio::test]
async fn addresses_that_are_not_public_are_denied_however_they_are_written() {
    let base = serve(vec![("/a", answer("content"))]);
    let port = base.rsplit(':').next().unwrap().to_owned();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "kubernetes.default.svc",
        "mirror.corp.internal",
        "metadata.goog",
    ] {
        let error = fetch(format!("http://{host}:{port}/a"), "content", &[])
            .await
            .unwrap_err();
        assert_eq!(error.cause, Cause::AddressDenied, "{host}: {error}");
    }
}

/// A server whose answer to `/move` is a redirect to `to`, and to everything else the key that came with the request.
fn echo(to: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let moved = moved(to);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 2048];
            let length = stream.read(&mut request).unwrap_or(0);
            let head = String::from_utf8_lossy(&request[..length]).into_owned();
            let key = head.lines().find(|line| line.starts_with("authorization"));
            let response = if head.starts_with("GET /move ") {
                moved.clone()
            } else {
                answer(key.unwrap_or("none"))
            };
            let _ = stream.write_all(response.as_bytes());
        }
    });
    base
}

#[tokio::test]
async fn a_key_goes_to_its_site_and_follows_no_redirect_elsewhere() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let elsewhere = echo("");
    let (away, home) = (echo(&elsewhere), echo("/back"));
    let ask = async |named: &str, path: &str| {
        let url = Url::parse(named).unwrap();
        let fetcher = Fetcher::new(vec!["127.0.0.0/8".parse().unwrap()], &Roots::default()).unwrap();
        let fetcher = fetcher.with_key(&url, HeaderValue::from_static("Bearer one"));
        let fetched = fetcher.get(&format!("{named}{path}")).await.unwrap();
        String::from_utf8(fetched.bytes.to_vec()).unwrap()
    };
    for (site, path, expected) in [
        (&home, "/a", "authorization: Bearer one"),
        (&home, "/move", "authorization: Bearer one"),
        (&away, "/move", "none"),
    ] {
        assert_eq!(ask(site, path).await, expected, "{path}");
    }
}
