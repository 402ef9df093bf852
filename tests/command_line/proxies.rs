//! The proxies of a gateway: its calls to providers go through them, and those to the hub do not.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::gateway::{Gateway, PATIENCE, client, hub, provider};
use super::port::free_port;
use super::program::folder;

/// A proxy that answers every request by itself, and says the first line of each.
async fn http_proxy() -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let line = String::from_utf8_lossy(&head)
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            if sender.send(line).is_err() {
                return;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nproxy";
            let _ = stream.write_all(answer).await;
        }
    });
    (url, receiver)
}

#[tokio::test]
async fn calls_of_a_provider_go_through_the_proxy_and_the_hub_is_reached_directly() {
    let (proxy, mut lines) = http_proxy().await;
    let (upstream, _sender) = provider().await;
    let (hub, pem, mut trusted) = hub().await;
    let folder = folder(&[("token", "a token"), ("ca.crt", &pem)]);
    let near = upstream.replace("127.0.0.1", "localhost");
    let settings = [
        ("KNACK_START_WAIT_SECONDS", "0"),
        ("HTTP_PROXY", proxy.as_str()),
        ("HTTPS_PROXY", &proxy),
        ("NO_PROXY", "localhost"),
        ("KNACK_UPSTREAM_ANTHROPIC", &near),
    ];
    let mut gateway = Gateway::start(folder.path(), "http://llm.example.test:8000/v1", &hub, &settings);
    gateway.healthy().await;
    let url = format!("{}/models", gateway.url);
    let answer = client().get(&url).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "proxy");
    assert_eq!(
        lines.recv().await.unwrap(),
        "GET http://llm.example.test:8000/v1/models HTTP/1.1"
    );
    // What NO_PROXY names is reached without it.
    let request = client().get(&url).header("anthropic-version", "2023-06-01");
    assert_eq!(request.send().await.unwrap().text().await.unwrap(), "models");
    tokio::time::timeout(PATIENCE, trusted.recv())
        .await
        .expect("the hub is reached")
        .unwrap();
    assert!(lines.try_recv().is_err(), "nothing else goes through the proxy");
}

/// A SOCKS5 proxy that leads every connection to one server, and says where it was asked to go.
async fn socks_proxy(server: String) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if let Ok(target) = socks_target(&mut stream).await
                && sender.send(target).is_ok()
            {
                let mut behind = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut stream, &mut behind).await });
            }
        }
    });
    (port, receiver)
}

/// Shakes hands as RFC 1928 says, without authentication: the name and port that are asked for.
async fn socks_target(stream: &mut TcpStream) -> std::io::Result<String> {
    let (version, methods) = (stream.read_u8().await?, stream.read_u8().await?);
    assert_eq!(version, 5, "the version of SOCKS");
    stream.read_exact(&mut vec![0; methods.into()]).await?;
    stream.write_all(&[5, 0]).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let host = if head[3] == 3 {
        let mut name = vec![0; stream.read_u8().await?.into()];
        stream.read_exact(&mut name).await?;
        String::from_utf8_lossy(&name).into_owned()
    } else {
        let mut address = [0; 4];
        stream.read_exact(&mut address).await?;
        Ipv4Addr::from(address).to_string()
    };
    let port = stream.read_u16().await?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(format!("{host}:{port}"))
}

#[tokio::test]
async fn calls_of_a_provider_go_through_a_socks_proxy() {
    let (upstream, _sender) = provider().await;
    let address = upstream.strip_prefix("http://").unwrap().to_owned();
    for (scheme, base, expected) in [
        ("socks5", upstream.as_str(), address.as_str()),
        ("socks5h", "http://llm.example.test:8000/v1", "llm.example.test:8000"),
    ] {
        let (port, mut targets) = socks_proxy(address.clone()).await;
        let folder = folder(&[]);
        let hub = format!("https://127.0.0.1:{}", free_port());
        let proxy = format!("{scheme}://127.0.0.1:{port}");
        let settings = [("KNACK_START_WAIT_SECONDS", "0"), ("ALL_PROXY", proxy.as_str())];
        let mut gateway = Gateway::start(folder.path(), base, &hub, &settings);
        gateway.healthy().await;
        let answer = client().get(format!("{}/models", gateway.url)).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "models", "{scheme}");
        assert_eq!(targets.try_recv().unwrap(), expected, "{scheme}");
    }
}
