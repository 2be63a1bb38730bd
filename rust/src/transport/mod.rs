//! Frames: the layer between a connection's bytes and its requests. It knows no socket and no
//!     message by name. The broker's connections and the client's use it.

pub mod frame;
