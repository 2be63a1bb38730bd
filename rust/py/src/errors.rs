//! Maps the core's errors to exceptions of `krust.errors` (no other file does), and handles Ctrl-C
//! while the core waits. An invalid message value is a bug of the caller: ValueError.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use krust::client::reachability::Reachability;
use krust::client::{Error, Interrupt};
use krust::net::StartError;
use krust::protocol::ErrorCode;
use krust::storage::StorageError;

/// The Python exception of a client error.
pub(super) fn of_client(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Interrupted => return PyKeyboardInterrupt::new_err(()),
        Error::Invalid(_) => "ConfigError",
        Error::Connect { .. }
        | Error::Tls { .. }
        | Error::Closed { .. }
        | Error::Timeout { .. } => "UnreachableError",
        Error::Transaction { is_fatal: false, .. } => "AbortableTransactionError",
        Error::Transaction { .. } if matches!(error.code(), 47 | 90) => "ProducerFencedError",
        Error::Transaction { .. } => "FatalTransactionError",
        _ => "KafkaError",
    };
    let hint = match error {
        Error::Connect { advertised: true, .. } => {
            Some("the cluster tells clients to use this address: set advertised.listeners there")
        }
        Error::Connect { .. } => Some("is a broker running there? start one: krust serve"),
        Error::Refused { code: 1, .. } => Some("krust topic offsets says which offsets there are"),
        Error::Protocol { .. } | Error::Closed { .. } => {
            Some("is this the port of a Kafka broker's PLAINTEXT listener?")
        }
        Error::Tls { .. } => Some(
            "is this the port of an SSL listener, and does ssl.truststore.location name the \
             authority that signed its certificate?",
        ),
        Error::Login { .. } => Some(
            "check security.protocol, sasl.mechanism, sasl.username and sasl.password; krust user \
             lists the users of SCRAM and makes new ones",
        ),
        Error::Refused { code: 10, .. } => {
            Some("krust topic alter TOPIC -c max.message.bytes=N raises the limit")
        }
        Error::Transaction { is_fatal: false, .. } => {
            Some("abort the transaction, then do its work again in a new one")
        }
        Error::Transaction { .. } if matches!(error.code(), 47 | 90) => Some(
            "close this producer; one process at a time may use a transactional.id, so check that \
             no other one does before you make a new producer",
        ),
        Error::Transaction { .. } => {
            Some("close this producer; the coordinator aborts the transaction that is open")
        }
        _ => None,
    };
    let raise = || -> PyResult<PyErr> {
        let details = PyDict::new(py);
        details.set_item("hint", hint)?;
        if !matches!(class, "ConfigError" | "UnreachableError") {
            details.set_item("code", error.code())?;
            details.set_item("name", ErrorCode::from(error.code()).name())?;
            details.set_item("retriable", error.retriable())?;
        }
        let class = py.import("krust.errors")?.getattr(class)?;
        let exception = class.call((error.to_string(),), Some(&details))?;
        Ok(PyErr::from_value(exception))
    };
    raise().unwrap_or_else(|failed| failed)
}

/// A `ServerError` with what happened and what to do.
pub(super) fn server(py: Python<'_>, what: &dyn Display, hint: Option<&str>) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        let details = PyDict::new(py);
        details.set_item("hint", hint)?;
        let class = py.import("krust.errors")?.getattr("ServerError")?;
        Ok(PyErr::from_value(class.call((what.to_string(),), Some(&details))?))
    };
    raise().unwrap_or_else(|failed| failed)
}

/// A `ConfigError` with what is wrong.
pub(super) fn config_error(py: Python<'_>, what: &dyn Display) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        let class = py.import("krust.errors")?.getattr("ConfigError")?;
        Ok(PyErr::from_value(class.call1((what.to_string(),))?))
    };
    raise().unwrap_or_else(|failed| failed)
}

/// A log directory that cannot be used.
pub(super) fn of_storage(py: Python<'_>, error: &StorageError) -> PyErr {
    let hint = match error {
        StorageError::Locked(_) => "stop the broker that uses it, or choose another data directory",
        StorageError::Io { .. } => "check that the directory is there and may be written",
        StorageError::NoSpace(_) => "free some disk space",
        StorageError::Meta(_) => "choose the directory of this cluster and node, or an empty one",
        _ => "look at what the log says before",
    };
    server(py, error, Some(hint))
}

/// A server that cannot listen.
pub(super) fn of_start(py: Python<'_>, error: &StartError) -> PyErr {
    let hint = match error {
        StartError::Bind(bind) if bind.source.kind() == std::io::ErrorKind::AddrInUse => {
            "stop what listens there, or choose another port (0: any that is free)"
        }
        StartError::Bind(_) => "choose another host or port",
        StartError::System(_) => "raise the limits on threads and open files (ulimit -u, -n)",
    };
    server(py, error, Some(hint))
}

/// Runs Python's signal handlers while the core waits, and keeps the exception they raise.
#[derive(Default)]
pub(super) struct Signals {
    raised: Mutex<Option<PyErr>>,
    ended: AtomicBool,
    pub(super) reachability: Arc<Reachability>,
    /// The Python client that reports unreachable brokers; unset: none does.
    pub(super) reporter: OnceLock<u64>,
}

impl Signals {
    /// Reports to `krust.clients.reach` which brokers became unreachable or reachable.
    pub(super) fn report_reachability(&self, py: Python<'_>) {
        let Some(reporter) = self.reporter.get().filter(|_| self.reachability.has_changes()) else {
            return;
        };
        for (address, reason) in self.reachability.take_changes() {
            let tell = || py.import("krust.clients.reach")?.getattr("tell");
            if let Err(error) = tell().and_then(|tell| tell.call1((*reporter, address, reason))) {
                error.write_unraisable(py, None);
            }
        }
    }

    /// Ends every wait from now on.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The exception that a signal handler raised, or else that of `error`.
    pub(super) fn exception(&self, py: Python<'_>, error: &Error) -> PyErr {
        let raised = self.raised.lock().take();
        match error {
            Error::Interrupted => raised.unwrap_or_else(|| of_client(py, error)),
            _ => of_client(py, error),
        }
    }
}

impl Interrupt for Signals {
    fn interrupted(&self) -> bool {
        if self.ended.load(Ordering::Relaxed) {
            return true;
        }
        Python::attach(|py| {
            self.report_reachability(py);
            match py.check_signals() {
                Ok(()) => false,
                Err(raised) => {
                    *self.raised.lock() = Some(raised);
                    true
                }
            }
        })
    }
}
