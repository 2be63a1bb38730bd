//! The layer between a connection's bytes and its requests: frames, and TLS below them. It knows no
//! socket and no message by name. The broker's connections and the client's use it.

pub mod frame;
pub mod tls;
