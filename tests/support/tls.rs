//! A TLS server on loopback whose certificate a private authority has signed.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::PrivateKeyDer;

/// What is wrong with the server's certificate.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// It is for another name.
    Name,
    /// It has expired.
    Time,
    /// It is an authority's.
    Authority,
}

/// A server that runs until the test ends.
pub(crate) struct TlsServer {
    /// `https://127.0.0.1:port`.
    pub url: String,
    /// The authority that has signed its certificate, PEM.
    pub authority: String,
}

/// Serves. `answer` has the head and the body of each request, and gives a whole response with `connection: close`.
pub(crate) fn serve(flaw: Flaw, answer: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> TlsServer {
    // Another test may have done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (authority, config) = identity(flaw);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
            std::thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                // A client that does not trust it ends the handshake.
                if let Some((head, body)) = read(&mut stream) {
                    let _ = stream.write_all(&answer(&head, &body));
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            });
        }
    });
    TlsServer { url, authority }
}

/// An answer of a status with a body.
pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// What a server without TLS at `host:port` answers.
pub(crate) fn forward(to: String) -> impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static {
    move |head, body| {
        let mut stream = std::net::TcpStream::connect(&to).unwrap();
        let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }
}

fn identity(flaw: Flaw) -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "Private Authority");
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let name = match flaw {
        Flaw::Name => "elsewhere.example",
        Flaw::None | Flaw::Time | Flaw::Authority => "127.0.0.1",
    };
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    if matches!(flaw, Flaw::Time) {
        params.not_after = date_time_ymd(2020, 1, 1);
    }
    if matches!(flaw, Flaw::Authority) {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    (authority, Arc::new(config))
}

fn read(stream: &mut impl std::io::Read) -> Option<(String, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let end = loop {
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&piece[..length]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut body = bytes.split_off(end);
    let announced = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    while body.len() < announced.unwrap_or(0) {
        let length = stream.read(&mut piece).ok().filter(|length| *length > 0)?;
        body.extend_from_slice(&piece[..length]);
    }
    Some((head, body))
}
