//! The providers behind the gateway: addresses, keys, headers, and requests that are streamed through.

pub mod base_url;
pub mod forwarded_headers;
mod hop;
pub mod operator_key;
pub mod provider;
pub(crate) mod provider_keys;
pub(crate) mod proxy;
pub mod upstream;
pub(crate) mod websocket;
