//! A web server on loopback inside the bed's network: archives, good and evil.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// Serves bodies by path until the process ends; returns `http://127.0.0.1:port`.
pub(crate) fn serve(table: Vec<(&'static str, Answer)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let table = Arc::new(table);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, table) = (stream.unwrap(), Arc::clone(&table));
            std::thread::spawn(move || answer(stream, &table));
        }
    });
    base
}

/// Answers one request, whatever its query.
fn answer(mut stream: TcpStream, table: &[(&'static str, Answer)]) {
    let mut request = [0; 2048];
    let length = stream.read(&mut request).unwrap_or(0);
    let head = String::from_utf8_lossy(&request[..length]).into_owned();
    let path = head.split([' ', '?']).nth(1).unwrap_or_default();
    let (head, body) = match table.iter().find(|(known, _)| *known == path).map(|(_, answer)| answer) {
        Some(Answer::Bytes(bytes)) => ("200 OK".to_owned(), bytes.as_slice()),
        Some(Answer::Moved(to)) => (format!("302 Found\r\nlocation: {to}"), b"".as_slice()),
        None => ("404 Not Found".to_owned(), b"".as_slice()),
    };
    let head = format!(
        "HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// What the server says.
pub(crate) enum Answer {
    Bytes(Vec<u8>),
    Moved(String),
}

/// `sha256:<hex>` of bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", knack_skill::tree::hex(&Sha256::digest(bytes)))
}

/// A .tar.gz of regular files, paths as they are.
pub(crate) fn tgz(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = header(path, tar::EntryType::Regular, content.len());
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// A .tar.gz with one symbolic link beside SKILL.md.
pub(crate) fn with_link(document: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut file = header("SKILL.md", tar::EntryType::Regular, document.len());
    file.set_cksum();
    builder.append(&file, document.as_bytes()).unwrap();
    let mut link = header("passwd", tar::EntryType::Symlink, 0);
    link.set_link_name("/etc/passwd").unwrap();
    link.set_cksum();
    builder.append(&link, b"".as_slice()).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}

/// A header whose path no builder would take.
fn header(path: &str, kind: tar::EntryType, size: usize) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size as u64);
    header
}
