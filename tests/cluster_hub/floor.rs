//! What the machine alone makes of a request: senders, hub, API server and sandboxes share its processors.

use std::net::SocketAddr;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

/// Between two bytes.
const PAUSE: Duration = Duration::from_millis(1);

/// A process that sends back each byte of one connection, and does nothing else.
pub(super) struct Echo {
    connection: TcpStream,
    _process: Child,
}

impl Echo {
    const PROGRAM: &str = "import socket\n\
        server = socket.create_server(('127.0.0.1', 0))\n\
        print(server.getsockname()[1], flush=True)\n\
        connection = server.accept()[0]\n\
        while byte := connection.recv(1): connection.send(byte)\n";

    pub(super) async fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", Self::PROGRAM]).stdout(Stdio::piped());
        let mut process = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut port = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut port).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
        let connection = TcpStream::connect(address).await.unwrap();
        connection.set_nodelay(true).unwrap();
        Self {
            connection,
            _process: process,
        }
    }

    /// Waits for something: what comes of it, and the longest that a byte took there and back meanwhile.
    pub(super) async fn beside<T>(&mut self, action: impl Future<Output = T>) -> (T, Duration) {
        let (mut action, mut longest) = (pin!(action), Duration::ZERO);
        loop {
            let mut trip = pin!(self.round_trip());
            tokio::select! {
                biased;
                done = &mut action => return (done, longest.max(trip.await)),
                took = &mut trip => longest = longest.max(took),
            }
        }
    }

    /// How long one byte takes there and back; then a pause, so that this takes no processor of its own.
    async fn round_trip(&mut self) -> Duration {
        let begun = Instant::now();
        self.connection.write_all(b"x").await.unwrap();
        self.connection.read_exact(&mut [0]).await.unwrap();
        let took = begun.elapsed();
        tokio::time::sleep(PAUSE).await;
        took
    }
}
