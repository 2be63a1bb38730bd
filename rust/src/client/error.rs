//! The errors of the client, by whose fault they are.
//!
//! Each variant tells the caller what to do next. A refusal carries Kafka's error code. A lost
//! connection may be opened again. Invalid bytes close the connection for good.

use std::fmt;

use crate::protocol::error::ErrorCode;

/// The result of every call of the client.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The caller's arguments are invalid; nothing was sent.
    Invalid(String),
    /// The broker refused the request with one of Kafka's error codes.
    Refused {
        /// Kafka's error code.
        code: i16,
        /// The refused API, or topic and partition.
        subject: String,
        /// The broker's message, if the version has one.
        message: Option<String>,
    },
    /// No connection could be made to any of the addresses tried.
    Connect {
        /// The address, as the user or the cluster wrote it.
        address: String,
        /// The system's message.
        reason: String,
        /// The cluster named this address; the user did not.
        advertised: bool,
    },
    /// The peer was reached, and no TLS session with it could be made.
    Tls {
        /// The peer.
        address: String,
        /// What TLS says.
        reason: String,
    },
    /// The broker does not let the client log in.
    Login {
        /// The peer.
        address: String,
        /// What the broker says.
        reason: String,
    },
    /// The connection ended before the response came.
    Closed {
        /// The peer.
        address: String,
    },
    /// The answer did not arrive in time.
    Timeout {
        /// What the client waited for.
        subject: String,
    },
    /// The peer's bytes are no Kafka protocol; the connection is closed.
    Protocol {
        /// The peer.
        address: String,
        /// What is wrong with them.
        reason: String,
    },
    /// Broker and client have no version of this API in common.
    Unsupported {
        /// The API's name.
        api: &'static str,
        /// The peer.
        address: String,
    },
    /// A transaction cannot go on.
    Transaction {
        /// Its transactional id.
        id: String,
        /// Whether the producer cannot have transactions any more. Otherwise the transaction has
        /// to be aborted, and the next one may succeed.
        is_fatal: bool,
        /// Why.
        cause: Box<Error>,
    },
    /// The caller's [`Interrupt`](super::Interrupt) asked to stop.
    Interrupted,
}

impl Error {
    /// A refusal of `subject` with `code`.
    pub fn refused(code: i16, subject: impl Into<String>) -> Self {
        Self::Refused { code, subject: subject.into(), message: None }
    }

    /// Kafka's code of this error. For an error that no broker returned, the nearest code.
    pub fn code(&self) -> i16 {
        match self {
            Self::Refused { code, .. } => *code,
            Self::Connect { .. } => 8,
            Self::Closed { .. } | Self::Tls { .. } => 13,
            Self::Login { .. } => 58,
            Self::Timeout { .. } => 7,
            Self::Protocol { .. } => 2,
            Self::Unsupported { .. } => 35,
            Self::Invalid(_) => 42,
            Self::Transaction { cause, .. } => cause.code(),
            Self::Interrupted => -1,
        }
    }

    /// Whether the same call may succeed when it is made again.
    pub fn retriable(&self) -> bool {
        match self {
            Self::Refused { code, .. } => ErrorCode::from(*code).is_retriable(),
            Self::Connect { .. } | Self::Closed { .. } | Self::Timeout { .. } => true,
            _ => false,
        }
    }

    /// Whether the error means that the metadata is out of date.
    pub fn stale_metadata(&self) -> bool {
        match self {
            Self::Refused { code, .. } => {
                matches!(code, 3 | 5 | 6 | 9 | 56 | 72 | 74 | 75 | 100 | 103)
            }
            Self::Connect { .. } | Self::Closed { .. } | Self::Timeout { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(reason) => f.write_str(reason),
            Self::Refused { code, subject, message } => {
                write!(f, "{subject}: ")?;
                match message {
                    Some(message) => f.write_str(message),
                    None => f.write_str(&words(*code)),
                }
            }
            Self::Connect { address, reason, .. } => {
                write!(f, "cannot connect to {address}: {reason}")
            }
            Self::Tls { address, reason } => {
                write!(f, "no TLS session with {address}: {reason}")
            }
            Self::Login { address, reason } => write!(f, "cannot log in at {address}: {reason}"),
            Self::Closed { address } => write!(f, "{address} closed the connection"),
            Self::Timeout { subject } => write!(f, "{subject}: no answer in time"),
            Self::Protocol { address, reason } => {
                write!(f, "{address} does not speak Kafka's protocol: {reason}")
            }
            Self::Unsupported { api, address } => {
                write!(f, "{address} serves no version of {api} that this client knows")
            }
            Self::Transaction { id, is_fatal: true, cause } if matches!(cause.code(), 47 | 90) => {
                write!(
                    f,
                    "this producer lost the transactional.id {id:?}: another producer uses it, or \
                     a transaction took longer than transaction.timeout.ms ({cause})"
                )
            }
            Self::Transaction { id, is_fatal: true, cause } => {
                write!(f, "the producer {id:?} cannot have transactions any more: {cause}")
            }
            Self::Transaction { id, cause, .. } => {
                write!(f, "the transaction of {id:?} cannot be committed: {cause}")
            }
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {}

/// The meaning of a code, for a refusal without a message of the broker.
fn words(code: i16) -> String {
    let known = match code {
        1 => "the offset is not in the log",
        3 => "there is no such topic or partition",
        5 => "the partition has no leader: its broker is away",
        8 => "the broker is not in the cluster now",
        10 => "the batch is larger than max.message.bytes of the topic",
        17 => "this cannot be a topic's name: letters, digits, '.', '_', '-', at most 249 of them",
        18 => "the batch is larger than segment.bytes of the topic",
        _ => "",
    };
    if known.is_empty() {
        return ErrorCode::from(code).name().replace('_', " ").to_lowercase();
    }
    known.to_owned()
}
