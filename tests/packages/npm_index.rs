//! An index of Node packages on loopback, with files made here.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A `.tgz`: path, kind, mode, content or target of a link.
pub(crate) fn tgz(entries: &[(&str, tar::EntryType, u32, &[u8])]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&crate::archives::tar(entries)).unwrap();
    encoder.finish().unwrap()
}

/// A package as npm packs it.
pub(crate) fn package(files: &[(&str, &str)]) -> Vec<u8> {
    let named: Vec<(String, &str)> = files
        .iter()
        .map(|(path, text)| (format!("package/{path}"), *text))
        .collect();
    let entries: Vec<(&str, tar::EntryType, u32, &[u8])> = named
        .iter()
        .map(|(path, text)| (path.as_str(), tar::EntryType::Regular, 0o644, text.as_bytes()))
        .collect();
    tgz(&entries)
}

/// The hash as locks have it.
pub(crate) fn integrity(bytes: &[u8]) -> String {
    format!("sha512-{}", STANDARD.encode(Sha512::digest(bytes)))
}

/// A lock of entries: location, version, the bytes of the file, and other members.
pub(crate) fn lock(entries: &[(&str, &str, &[u8], Value)]) -> String {
    let mut packages = Map::new();
    let mut root = Map::new();
    for (location, version, bytes, members) in entries {
        let mut entry = json!({"version": version, "integrity": integrity(bytes)});
        entry
            .as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        packages.insert((*location).to_owned(), entry);
        let name = location.trim_start_matches("node_modules/");
        if !name.contains("/node_modules/") {
            root.insert(name.to_owned(), json!(version));
        }
    }
    packages.insert(String::new(), json!({"dependencies": root}));
    json!({"lockfileVersion": 3, "packages": packages}).to_string()
}

/// The running index. Dropping it ends it.
pub(crate) struct NpmServer {
    pub(crate) url: String,
    /// Paths that were asked for.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    serving: AbortHandle,
}

impl Drop for NpmServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl NpmServer {
    /// Serves files by their path below the address; a file without content is answered by 503.
    pub(crate) async fn serve(files: &[(&str, &[u8])]) -> Self {
        let files: BTreeMap<String, Vec<u8>> = files
            .iter()
            .map(|(path, bytes)| (format!("/npm/{path}"), bytes.to_vec()))
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/npm", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&asked);
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read_buf(&mut head).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) => {}
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let (status, body) = match files.get(&path) {
                    Some(body) if body.is_empty() => ("503 Service Unavailable", &b""[..]),
                    Some(body) => ("200 OK", body.as_slice()),
                    None => ("404 Not Found", &b""[..]),
                };
                told.lock().unwrap().push(path);
                let mut answer = Vec::new();
                write!(
                    answer,
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                )
                .unwrap();
                answer.extend_from_slice(body);
                let _ = stream.write_all(&answer).await;
            }
        });
        Self {
            url,
            asked,
            serving: serving.abort_handle(),
        }
    }
}
