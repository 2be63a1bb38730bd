//! TLS 1.2 and 1.3 for connections that are read and written without blocking, by rustls.
//!
//! `settings` turns Kafka's settings into the configuration of a listener or a client, `stores`
//! finds its keys and certificates, `keystore` and `jks` read them, `session` is one connection of
//! either side, `resumed` checks certificates of resumed ones, `subject` writes the name in a
//! certificate.
//! Why rustls with ring: no C library to find at run time, the same code on every platform, 1 MB in
//! the wheel. rustls refuses what is obsolete (TLS 1.1, RSA key exchange, CBC), so a setting cannot
//! turn it on.

mod jks;
mod keystore;
mod resumed;
mod session;
mod settings;
mod stores;
mod subject;
mod verify;

pub use self::session::{SEND_BYTES, TlsBuffers, TlsSession};
pub use self::settings::{ClientTls, ServerTls, TlsError};
pub use self::stores::{KEYS, TlsSettings};
pub use self::subject::{SubjectError, subject};
