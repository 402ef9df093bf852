//! A package index on loopback (PEP 503), with wheels made here.

use std::collections::BTreeMap;
use std::io::Write as _;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Hex SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A wheel of a name and version with these files, and with these lines of metadata.
pub(crate) fn wheel(name: &str, version: &str, metadata: &str, files: &[(&str, &str)]) -> (String, Vec<u8>) {
    let info = format!("{name}-{version}.dist-info");
    let mut all: Vec<(String, String)> = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    let head = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}");
    all.push((format!("{info}/METADATA"), head));
    let kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    all.push((format!("{info}/WHEEL"), kind.to_owned()));
    let record: String = all.iter().map(|(path, _)| format!("{path},,\n")).collect();
    all.push((format!("{info}/RECORD"), format!("{record}{info}/RECORD,,\n")));
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (path, text) in &all {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(path.as_str(), options).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    (
        format!("{name}-{version}-py3-none-any.whl"),
        zip.finish().unwrap().into_inner(),
    )
}

/// An index that serves while it lives.
pub(crate) struct Index {
    pub(crate) url: String,
    serving: AbortHandle,
}

impl Drop for Index {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Index {
    /// Serves files of one project with the times at which the index got them (PEP 691, PEP 700).
    pub(crate) async fn serve_dated(project: &str, files: Vec<(String, Vec<u8>, &str)>) -> Self {
        let entries: Vec<_> = files
            .iter()
            .map(|(name, bytes, time)| {
                serde_json::json!({"filename": name, "url": format!("/files/{name}"), "hashes": {"sha256": sha256(bytes)},
                    "size": bytes.len(), "upload-time": time})
            })
            .collect();
        let page =
            serde_json::json!({"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": entries});
        let mut pages: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        pages.insert(format!("/simple/{project}/"), page.to_string().into_bytes());
        pages.extend(
            files
                .into_iter()
                .map(|(name, bytes, _)| (format!("/files/{name}"), bytes)),
        );
        Self::of_pages(pages, "application/vnd.pypi.simple.v1+json").await
    }

    /// Serves files: each belongs to the project whose name its own begins with.
    pub(crate) async fn serve(files: Vec<(String, Vec<u8>)>) -> Self {
        let mut pages: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (name, bytes) in files {
            let project = name.split('-').next().unwrap().replace('_', "-").to_lowercase();
            let link = format!("<a href=\"/files/{name}#sha256={}\">{name}</a>\n", sha256(&bytes));
            pages
                .entry(format!("/simple/{project}/"))
                .or_default()
                .extend(link.bytes());
            pages.insert(format!("/files/{name}"), bytes);
        }
        Self::of_pages(pages, "text/html").await
    }

    /// Serves these pages; `listing` is the type of those that list files.
    async fn of_pages(pages: BTreeMap<String, Vec<u8>>, listing: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/simple", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let pages = pages.clone();
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read_buf(&mut head).await {
                            Ok(0) | Err(_) => return,
                            Ok(_) => {}
                        }
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    let kind = if path.starts_with("/simple") {
                        listing
                    } else {
                        "application/octet-stream"
                    };
                    let (status, body) = match pages.get(path) {
                        Some(body) => ("200 OK", body.as_slice()),
                        None => ("404 Not Found", &b""[..]),
                    };
                    let head = format!(
                        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        body.len()
                    );
                    let body = [head.as_bytes(), body].concat();
                    let _ = stream.write_all(&body).await;
                });
            }
        });
        Self {
            url,
            serving: serving.abort_handle(),
        }
    }
}
