//! Bytes in, bytes out, no socket and no message by name: what lies between a connection and the
//! requests on it. Used by the broker's connections and by the client's alike.

pub mod frame;
