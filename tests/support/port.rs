//! Ports for processes of tests, which are told where to listen.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// Ports of tests: below those that the kernel gives to outgoing connections (32768 and up), so that no connection takes one between
/// its choice and its use, and none that waits for a server connects to itself. Node ports begin at 30000.
const PORTS: std::ops::Range<u16> = 21_000..29_000;

/// The UDP ports of the same numbers, which nothing uses: who has one may listen at the TCP port, in whatever process of tests. They
/// are given back when the process ends.
static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// A free port of loopback, which no other test of this machine is given while this process lives: suites run beside each other, and
/// a port is bound some time after its choice.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let ports = PORTS.end - PORTS.start;
    // Processes of tests that follow each other begin at different places: connections of the last one may still linger.
    let begin = std::process::id() % u32::from(ports);
    (0..ports)
        .map(|_| u32::from(NEXT.fetch_add(1, Ordering::Relaxed)) + begin)
        .map(|place| PORTS.start + u16::try_from(place % u32::from(ports)).unwrap())
        .find(|port| is_claimed(*port) && TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

fn is_claimed(port: u16) -> bool {
    let Ok(claim) = UdpSocket::bind(("127.0.0.1", port)) else {
        return false;
    };
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
    true
}
