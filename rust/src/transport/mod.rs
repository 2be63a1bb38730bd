//! The layer between a connection's bytes and its requests: frames, TLS below them, and the tokens
//! of SASL. It knows no socket and no message by name. The broker's connections and the client's
//! use it. The cipher of stored passwords is here too.

pub mod frame;
pub mod password_cipher;
pub mod sasl;
pub mod tls;

use self::sasl::SaslLogin;
use self::tls::ClientTls;

/// What secures the connections of a client (`security.protocol`).
#[derive(Clone, Default)]
pub struct ClientSecurity {
    /// Their TLS; `None`: plain text.
    pub tls: Option<ClientTls>,
    /// How they log in; `None`: not at all.
    pub login: Option<SaslLogin>,
}
