//! The gateway's side towards its clients: connections, which hosts may call, bodies within memory, errors, its own endpoints.

pub mod budget;
pub mod fault;
pub mod host_guard;
pub(crate) mod own_routes;
pub(crate) mod probing;
pub mod request_id;
pub(crate) mod request_path;
pub mod server;
