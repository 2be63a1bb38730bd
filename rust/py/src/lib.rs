//! The native boundary: the module `krust._krust`, and the only crate that uses pyo3. It is apart
//! from the core so that the core is compiled once, for Python and for the tests of Rust.
//!
//! Network threads never attach to the interpreter. They push into queues that Python's threads
//! empty. Classes are frozen. A call that may wait detaches from the interpreter first and takes
//! its lock after that, so that no lock is held across a crossing. While it waits, it attaches for
//! a short time every 50 ms to let Python's signal handlers run (Ctrl-C). `python/krust/_krust.pyi`
//! describes each item; stubtest compares the two.

#![expect(clippy::too_many_arguments, reason = "pyo3 makes wrappers of five")]

mod acls;
mod apis;
mod arrow;
mod client;
mod consumer;
mod convert;
mod decided;
mod errors;
mod events;
mod logs;
mod logtools;
mod passwords;
mod principals;
mod producer;
mod quotas;
mod sasl;
mod sender;
mod server;
mod settings;
mod tls;

use pyo3::prelude::*;

/// krust's native core.
#[pymodule]
mod _krust {
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    use krust::client::admin;

    #[pymodule_export]
    use super::acls::PyAclQuestions;
    #[pymodule_export]
    use super::apis::served_apis;
    #[pymodule_export]
    use super::arrow::{ArrowBatch, ArrowStream, offset_at, partitions, scan};
    #[pymodule_export]
    use super::client::PyClient;
    #[pymodule_export]
    use super::client::error_info;
    #[pymodule_export]
    use super::consumer::{PyConsumer, PyRecord, records};
    #[pymodule_export]
    use super::logs::{log_requests, logs};
    #[pymodule_export]
    use super::logtools::{LogDump, log_dir_verify, log_verify};
    #[pymodule_export]
    use super::passwords::{decrypt, encrypt};
    #[pymodule_export]
    use super::principals::PyPrincipalRules;
    #[pymodule_export]
    use super::producer::PyProducer;
    #[pymodule_export]
    use super::sender::{Delivered, PySender, forked};
    #[pymodule_export]
    use super::server::PyServer;
    #[pymodule_export]
    use super::tls::PyServerTls;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::logs::install();
        let columns = krust::columns::Column::ALL.map(krust::columns::Column::name);
        module.add("COLUMNS", PyTuple::new(module.py(), columns)?)?;
        module.add("LATEST", admin::LATEST)?;
        module.add("EARLIEST", admin::EARLIEST)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
