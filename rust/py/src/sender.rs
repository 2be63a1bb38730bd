//! `_krust.Sender`: each call appends a record from Python to the batches of a Rust thread.
//!
//! That thread never attaches to the interpreter. A record is copied once, attached, under the
//! sender's short lock, which is never held while anything waits. Delivery callbacks are kept here
//! by batch. They run on the Python thread that calls `serve`, never on the Rust thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::arrow;
use super::client::{ClientProperties, cluster_options, forked_error};
use super::errors::{Signals, of_client};
use super::producer::config;
use krust::client::producer::{DeliveryReport, GroupOffsets};
use krust::client::sender::{AppendResult, MetadataTimes, Sender as Core};
use krust::client::{self, Error};
use krust::clock::{Clock, SystemClock};
use krust::columns::arrow_records::{ArrowRecords, ColumnRoles};
use krust::record::batch::NewRecord;

/// How many forks are between this process and the first one; [`forked`] counts them.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The partition that means "by key" in librdkafka's API.
const UNASSIGNED: i32 = -1;
/// Rows of a table between two checks for signals.
const ROWS_PER_TURN: usize = 16_384;

/// Notes that this process is a forked child. See `_krust.pyi`.
#[pyfunction]
pub(super) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// See `_krust.pyi`.
#[pyclass(frozen, module = "krust._krust")]
pub(super) struct Delivered {
    #[pyo3(get)]
    topic: Py<PyString>,
    #[pyo3(get)]
    partition: i32,
    #[pyo3(get)]
    offset: i64,
}

#[pymethods]
impl Delivered {
    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<Delivered {}:{} offset {}>", self.topic.bind(py), self.partition, self.offset)
    }
}

/// By batch: the record's number and its callback.
type DeliveryCallbacks = HashMap<u64, Vec<(i32, Py<PyAny>)>>;

/// See `_krust.pyi`.
#[pyclass(frozen, subclass, name = "Sender", module = "krust._krust")]
pub(super) struct PySender {
    core: Core,
    signals: Arc<Signals>,
    callbacks: Mutex<DeliveryCallbacks>,
    failures: Mutex<Option<(Error, usize)>>,
    forks: u32,
}

/// Group, generation, member id and instance id of the member whose offsets are committed.
type GroupMetadata = (String, i32, String, Option<String>);

/// Producer id, epoch, whether the version is 2; topic, partition, first and last offset, records.
type HandedOver = ((i64, i16, bool), Vec<(String, i32, i64, i64, i64)>);

/// One record's arguments.
struct OutgoingRecord<'a, 'py> {
    topic: &'a str,
    value: Option<&'a Bound<'py, PyAny>>,
    key: Option<&'a Bound<'py, PyAny>>,
    partition: Option<i32>,
    callback: Option<&'a Bound<'py, PyAny>>,
    timestamp_ms: Option<i64>,
    headers: Option<&'a Bound<'py, PyAny>>,
}

impl PySender {
    fn check_fork(&self, py: Python<'_>) -> PyResult<()> {
        if FORKS.load(Ordering::Relaxed) == self.forks { Ok(()) } else { Err(forked_error(py)) }
    }

    /// Runs a call that waits, detached.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Core) -> client::Result<T> + Send,
    ) -> PyResult<T> {
        self.check_fork(py)?;
        py.detach(|| call(&self.core)).map_err(|error| self.signals.exception(py, &error))
    }

    fn try_append(&self, py: Python<'_>, record: &OutgoingRecord<'_, '_>) -> PyResult<bool> {
        let headers = match record.headers {
            None => Vec::new(),
            Some(headers) => pairs(headers)?,
        };
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref().map(|v| v.as_bytes())))
            .collect();
        let entry = NewRecord {
            timestamp: record.timestamp_ms.unwrap_or_else(|| SystemClock.wall_ms()),
            key: bytes(record.key)?,
            value: bytes(record.value)?,
            headers: &headers,
        };
        let partition = record.partition.filter(|partition| *partition != UNASSIGNED);
        let watched = record.callback.is_some();
        let offer = self.core.try_append(record.topic, partition, (&entry, watched));
        match offer.map_err(|error| of_client(py, &error))? {
            AppendResult::Wait => Ok(false),
            AppendResult::Appended { ticket, index } => {
                if let Some(callback) = record.callback {
                    let callback = (index, callback.clone().unbind());
                    self.callbacks.lock().entry(ticket).or_default().push(callback);
                }
                Ok(true)
            }
        }
    }

    fn append_rows(&self, py: Python<'_>, rows: &ArrowRecords) -> PyResult<()> {
        let mut row = 0;
        while row < rows.len() {
            let work = || {
                let taken = rows.append(&self.core, row, (ROWS_PER_TURN, SystemClock.wall_ms()))?;
                if taken < rows.len().min(row + ROWS_PER_TURN) {
                    self.core.wait_for(rows.topic(taken)?)?;
                }
                Ok(taken)
            };
            row = py.detach(work).map_err(|error: Error| self.signals.exception(py, &error))?;
            self.serve(py)?;
            py.check_signals()?;
        }
        Ok(())
    }

    /// Calls the delivery callbacks of a batch, in the order of its records.
    fn call_callbacks(&self, py: Python<'_>, outcome: &DeliveryReport) -> PyResult<()> {
        let callbacks = self.callbacks.lock().remove(&outcome.ticket).unwrap_or_default();
        let count = usize::try_from(outcome.count).unwrap_or(0);
        let without_callback = count.saturating_sub(callbacks.len());
        if let Some(error) = outcome.error.as_ref().filter(|_| without_callback > 0) {
            let mut lost = self.failures.lock();
            let (first, before) = lost.take().unwrap_or_else(|| (error.clone(), 0));
            *lost = Some((first, before + without_callback));
        }
        let topic = PyString::intern(py, &outcome.topic);
        let error = outcome.error.as_ref().map(|error| of_client(py, error));
        let mut raised = Ok(());
        for (index, callback) in callbacks {
            let offset = match outcome.base_offset {
                base if base < 0 => -1,
                base => base + i64::from(index),
            };
            let (topic, partition) = (topic.clone().unbind(), outcome.partition);
            let delivered = Delivered { topic, partition, offset };
            let error = error.as_ref().map(|error| error.clone_ref(py));
            let called = callback.call1(py, (error, delivered));
            raised = raised.and(called.map(drop));
        }
        raised
    }
}

#[pymethods]
impl PySender {
    #[new]
    #[pyo3(signature = (bootstrap, options=None))]
    fn new(py: Python<'_>, bootstrap: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let signals = Arc::new(Signals::default());
        let mut properties = ClientProperties::new(options)?;
        let make = |properties: &mut ClientProperties<'_>| -> client::Result<Core> {
            let options = cluster_options(bootstrap, properties, &signals)?;
            let config = config(properties)?;
            let default = MetadataTimes::default();
            let times = MetadataTimes {
                max_block: properties.duration("max.block.ms")?.unwrap_or(default.max_block),
                metadata_max_age: properties
                    .duration("metadata.max.age.ms")?
                    .unwrap_or(default.metadata_max_age),
            };
            properties.finish()?;
            Core::new(options, config, times)
        };
        let core = make(&mut properties).map_err(|error| of_client(py, &error))?;
        let (callbacks, failures) = (Mutex::new(HashMap::new()), Mutex::new(None));
        Ok(Self { core, signals, callbacks, failures, forks: FORKS.load(Ordering::Relaxed) })
    }

    #[pyo3(signature = (
        topic, value=None, key=None, partition=None, on_delivery=None, timestamp_ms=None,
        headers=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "confluent-kafka's order of arguments")]
    fn produce(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        on_delivery: Option<&Bound<'_, PyAny>>,
        timestamp_ms: Option<i64>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.check_fork(py)?;
        let callback = on_delivery;
        let record =
            OutgoingRecord { topic, value, key, partition, callback, timestamp_ms, headers };
        self.signals.report_reachability(py);
        while !self.try_append(py, &record)? {
            py.detach(|| self.core.wait_for(topic))
                .map_err(|error| self.signals.exception(py, &error))?;
            self.serve(py)?;
        }
        Ok(())
    }

    #[pyo3(signature = (
        topic, value=None, key=None, partition=None, on_delivery=None, timestamp_ms=None,
        headers=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "those of produce")]
    fn try_produce(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        on_delivery: Option<&Bound<'_, PyAny>>,
        timestamp_ms: Option<i64>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        self.check_fork(py)?;
        let callback = on_delivery;
        let record =
            OutgoingRecord { topic, value, key, partition, callback, timestamp_ms, headers };
        self.try_append(py, &record)
    }

    #[pyo3(signature = (table, *, columns, topic=None))]
    fn append(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        columns: HashMap<String, String>,
        topic: Option<&str>,
    ) -> PyResult<usize> {
        self.check_fork(py)?;
        let roles = ColumnRoles::of(columns).map_err(|error| of_client(py, &error))?;
        let mut batches = arrow::batches(table)?;
        let mut count = 0;
        while let Some(batch) = py.detach(|| batches.next()) {
            let batch = batch.map_err(|error| PyOSError::new_err(error.to_string()))?;
            let rows = ArrowRecords::of(&batch, &roles, (topic, count));
            let rows = rows.map_err(|error| of_client(py, &error))?;
            self.append_rows(py, &rows)?;
            count += rows.len();
        }
        Ok(count)
    }

    fn serve(&self, py: Python<'_>) -> PyResult<usize> {
        self.check_fork(py)?;
        self.signals.report_reachability(py);
        let delivered = self.core.take_delivery_reports();
        let mut raised = Ok(());
        for outcome in &delivered {
            raised = raised.and(self.call_callbacks(py, outcome));
        }
        raised.map(|()| delivered.len())
    }

    fn drain(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<usize> {
        self.check_fork(py)?;
        let waits = timeout_ms > 0;
        if !waits {
            self.serve(py)?;
        }
        let left = py
            .detach(|| self.core.flush(Duration::from_millis(timeout_ms)))
            .map_err(|error| self.signals.exception(py, &error))?;
        // A caller that waits by itself is notified of the reports that come after its look.
        if waits || left == 0 {
            self.serve(py)?;
        }
        Ok(left)
    }

    fn init_transactions(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Core::init_transactions)
    }

    fn begin_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Core::begin_transaction)
    }

    fn add_offsets(
        &self,
        py: Python<'_>,
        group: GroupMetadata,
        offsets: Vec<(String, i32, i64)>,
    ) -> PyResult<()> {
        let (group_id, generation, member_id, instance_id) = group;
        let group = GroupOffsets { group_id, generation, member_id, instance_id, offsets };
        self.run(py, |core| core.send_offsets(group))
    }

    fn end_transaction(&self, py: Python<'_>, commit: bool, timeout_ms: u64) -> PyResult<()> {
        self.run(py, |core| core.end_transaction(commit, Duration::from_millis(timeout_ms)))
    }

    fn hand_over(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<HandedOver> {
        let delivery = Duration::from_millis(timeout_ms);
        let prepared = self.run(py, |core| core.prepare_transaction(delivery))?;
        let ranges = prepared.written.into_iter().map(|((topic, partition), range)| {
            (topic.to_string(), partition, range.first, range.last, range.records)
        });
        let identity = (prepared.producer_id, prepared.producer_epoch, prepared.is_v2);
        Ok((identity, ranges.collect()))
    }

    fn in_transaction(&self) -> bool {
        self.core.in_transaction()
    }

    fn take_failures(&self, py: Python<'_>) -> Option<(PyErr, usize)> {
        let lost = self.failures.lock().take();
        lost.map(|(error, count)| (of_client(py, &error), count))
    }

    fn partitions(&self, py: Python<'_>, topic: &str) -> PyResult<i32> {
        self.check_fork(py)?;
        loop {
            let known = self.core.partitions(topic).map_err(|error| of_client(py, &error))?;
            if let Some(count) = known {
                return Ok(count);
            }
            py.detach(|| self.core.wait_for(topic))
                .map_err(|error| self.signals.exception(py, &error))?;
        }
    }

    fn held_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.check_fork(py)?;
        Ok(self.core.held_bytes())
    }

    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.check_fork(py)?;
        self.core.notification_fd().map_err(|error| of_client(py, &error))
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.check_fork(py)?;
        py.detach(|| self.core.close());
        Ok(())
    }
}

/// The bytes of a key or value: bytes as they are, text as UTF-8.
fn bytes<'a>(object: Option<&'a Bound<'_, PyAny>>) -> PyResult<Option<&'a [u8]>> {
    let Some(object) = object else { return Ok(None) };
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes()));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(text.to_str()?.as_bytes()));
    }
    let kind = object.get_type().name()?;
    Err(PyTypeError::new_err(format!("a key or value is bytes, str or None, not {kind}")))
}

/// Headers as a list of pairs, or as a dict.
fn pairs<'py>(object: &Bound<'py, PyAny>) -> PyResult<Vec<(String, Option<Bound<'py, PyBytes>>)>> {
    let items = match object.cast::<PyDict>() {
        Ok(dict) => dict.items().into_any(),
        Err(_) => object.clone(),
    };
    let mut pairs = Vec::new();
    for item in items.try_iter()? {
        let (name, value): (String, Bound<'py, PyAny>) = item?.extract()?;
        let value = bytes(Some(&value).filter(|value| !value.is_none()))?
            .map(|bytes| PyBytes::new(object.py(), bytes));
        pairs.push((name, value));
    }
    Ok(pairs)
}
