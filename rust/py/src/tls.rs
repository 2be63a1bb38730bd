//! `_krust.ServerTls`: the TLS of a listener, made of Kafka's settings.
//!
//! Threads: any. Files are read detached from the interpreter.

use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::config_error;
use krust::transport::tls::{ServerTls, TlsSettings};

/// See `_krust.pyi`.
#[pyclass(frozen, name = "ServerTls", module = "krust._krust")]
pub(super) struct PyServerTls(Arc<ServerTls>);

impl PyServerTls {
    /// The configuration, which later changes replace in place.
    pub(super) fn shared(&self) -> Arc<ServerTls> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl PyServerTls {
    #[new]
    fn new(py: Python<'_>, settings: TlsSettings) -> PyResult<Self> {
        read(py, &settings).map(|tls| Self(Arc::new(tls)))
    }

    fn replace(&self, py: Python<'_>, settings: TlsSettings) -> PyResult<()> {
        read(py, &settings).map(|tls| self.0.replace(tls))
    }
}

fn read(py: Python<'_>, settings: &TlsSettings) -> PyResult<ServerTls> {
    py.detach(|| ServerTls::new(settings)).map_err(|error| config_error(py, &error))
}
