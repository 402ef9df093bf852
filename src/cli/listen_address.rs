//! Addresses to serve on, as flags and variables give them.

use std::net::SocketAddr;

/// Reads an address and a port.
pub(crate) fn listen_address(written: &str) -> Result<SocketAddr, String> {
    let address = written.parse();
    address.map_err(|_| "write an address and a port, such as 127.0.0.1:4141".to_owned())
}
