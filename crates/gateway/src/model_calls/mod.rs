//! Model calls: what is injected, the loop with the provider, hidden turns, and answers that the provider keeps.

pub(crate) mod call;
pub(crate) mod client_timeout;
pub(crate) mod compressed;
pub(crate) mod exchange;
pub(crate) mod hidden_turns;
pub mod inject;
pub(crate) mod model;
pub(crate) mod stored;
pub mod turn_store;

pub use self::exchange::insert_stream_headers;
