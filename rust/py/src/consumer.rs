//! `_krust.Consumer`: records from fetched batches, a bounded number at a time.
//!
//! A chunk is fetched and decompressed detached from the interpreter. Then it is taken out of the
//! guarded state, visited attached without any lock, and put back with its remaining records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::arrow::ArrowBatch;
use super::client::{ClientProperties, GuardedCore};
use super::errors::of_client;
use krust::client;
use krust::client::chunk::{BatchOrigin, Chunk};
use krust::client::consumer::{Assignment, Consumer as CoreConsumer, ConsumerConfig};
use krust::columns::Projection;
use krust::columns::builder::{ColumnsBuilder, ScanLimits};
use krust::record::batch::Record as BatchRecord;

/// The core's consumer, and the fetched chunks that Python has not taken yet.
struct ConsumerState {
    core: CoreConsumer,
    chunks: VecDeque<Chunk>,
    /// The columns' names and their builder, which keeps the buffers that readers returned.
    builder: Option<(Vec<String>, ColumnsBuilder)>,
    /// An error that followed the returned records.
    deferred_error: Option<client::Error>,
}

/// Topic, partition, offset.
type PositionRow = (String, i32, i64);
type NextPositions = Vec<(Arc<str>, i32, i64)>;

/// Sets the next position of a chunk's partition.
fn set_position(positions: &mut NextPositions, chunk: &Chunk) {
    let position = (Arc::clone(&chunk.topic), chunk.partition, chunk.position());
    match positions
        .iter_mut()
        .find(|(topic, partition, _)| *topic == chunk.topic && *partition == chunk.partition)
    {
        Some(known) => *known = position,
        None => positions.push(position),
    }
}

fn position_rows(positions: NextPositions) -> Vec<PositionRow> {
    let named =
        |(topic, partition, offset): (Arc<str>, i32, i64)| (topic.to_string(), partition, offset);
    positions.into_iter().map(named).collect()
}

impl ConsumerState {
    /// The next chunk, opened. If there is none, it is fetched within `time`. `positions` gets the
    /// ends of chunks that have no record to return: markers, and records of aborted transactions.
    fn next(
        &mut self,
        time: Option<Duration>,
        positions: &mut NextPositions,
    ) -> client::Result<Option<Chunk>> {
        if let Some(error) = self.deferred_error.take() {
            return Err(error);
        }
        if self.chunks.is_empty()
            && let Some(time) = time
        {
            self.chunks.extend(self.core.poll(time)?);
        }
        while let Some(mut chunk) = self.chunks.pop_front() {
            if chunk.open()? {
                return Ok(Some(chunk));
            }
            set_position(positions, &chunk);
        }
        Ok(None)
    }

    /// The fetched records as columns, and the next position of each of their partitions.
    fn columns(
        &mut self,
        time: Duration,
        (columns, limits): (Vec<String>, ScanLimits),
    ) -> client::Result<(RecordBatch, NextPositions)> {
        let mut builder = match self.builder.take() {
            Some((known, builder)) if known == columns && *builder.requested_limits() == limits => {
                builder
            }
            _ => ColumnsBuilder::new(Projection::of(&columns)?, limits),
        };
        let (mut positions, mut time) = (Vec::new(), Some(time));
        while !builder.is_full() {
            match self.take(&mut builder, &mut positions, time.take()) {
                Ok(true) => {}
                Err(error) if builder.rows() == 0 => return Err(error),
                other => {
                    self.deferred_error = other.err();
                    break;
                }
            }
        }
        let schema = builder.projection().schema();
        let batch = builder.finish()?.unwrap_or_else(|| RecordBatch::new_empty(schema));
        self.builder = Some((columns, builder));
        Ok((batch, positions))
    }

    /// Adds a chunk to a batch; `false`: there is none.
    fn take(
        &mut self,
        builder: &mut ColumnsBuilder,
        positions: &mut NextPositions,
        time: Option<Duration>,
    ) -> client::Result<bool> {
        let Some(mut chunk) = self.next(time, positions)? else { return Ok(false) };
        let taken = builder.take(&mut chunk);
        set_position(positions, &chunk);
        if !taken? {
            self.chunks.push_front(chunk);
        }
        Ok(true)
    }

    fn count(&mut self, time: Duration) -> client::Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        for mut chunk in self.core.poll(time)? {
            bytes += u64::try_from(chunk.size()).unwrap_or(u64::MAX);
            chunk.visit_all(|_, _| {
                records += 1;
                true
            })?;
        }
        Ok((records, bytes))
    }

    /// Drops the fetched records of one partition that were not returned yet.
    fn drop_chunks(&mut self, topic: &str, partition: i32) {
        self.deferred_error = None;
        self.chunks.retain(|chunk| chunk.partition != partition || *chunk.topic != *topic);
    }
}

/// See `_krust.pyi`.
#[pyclass(frozen, name = "Record", module = "krust._krust")]
pub(super) struct PyRecord {
    #[pyo3(get)]
    topic: Py<PyString>,
    #[pyo3(get)]
    partition: i32,
    #[pyo3(get)]
    offset: i64,
    #[pyo3(get)]
    timestamp_ms: i64,
    #[pyo3(get)]
    timestamp_type: i8,
    #[pyo3(get)]
    key: Py<PyAny>,
    #[pyo3(get)]
    value: Py<PyAny>,
    #[pyo3(get)]
    headers: Py<PyTuple>,
}

#[pymethods]
impl PyRecord {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (key, value) = (self.key.bind(py).repr()?, self.value.bind(py).repr()?);
        let (topic, partition, offset) = (self.topic.bind(py), self.partition, self.offset);
        Ok(format!("<Record {topic}:{partition} offset {offset} key {key} value {value}>"))
    }
}

/// The Python objects that the records of one chunk share.
struct RecordFactory<'py> {
    py: Python<'py>,
    topic: Py<PyString>,
    partition: i32,
    none: Py<PyAny>,
    no_headers: Py<PyTuple>,
}

impl<'py> RecordFactory<'py> {
    fn new(py: Python<'py>, chunk: &Chunk) -> Self {
        Self {
            py,
            topic: PyString::intern(py, &chunk.topic).unbind(),
            partition: chunk.partition,
            none: py.None(),
            no_headers: PyTuple::empty(py).unbind(),
        }
    }

    fn bytes(&self, bytes: Option<&[u8]>) -> Py<PyAny> {
        match bytes {
            Some(bytes) => PyBytes::new(self.py, bytes).into_any().unbind(),
            None => self.none.clone_ref(self.py),
        }
    }

    fn record(
        &self,
        record: &BatchRecord<'_>,
        origin: &BatchOrigin,
    ) -> PyResult<Bound<'py, PyRecord>> {
        let headers = if record.headers.is_empty() {
            self.no_headers.clone_ref(self.py)
        } else {
            let headers = record.headers.iter().map(|(name, value)| {
                (String::from_utf8_lossy(name).into_owned(), self.bytes(value))
            });
            PyTuple::new(self.py, headers.collect::<Vec<_>>())?.unbind()
        };
        let record = PyRecord {
            topic: self.topic.clone_ref(self.py),
            partition: self.partition,
            offset: record.offset,
            timestamp_ms: record.timestamp,
            timestamp_type: origin.timestamp_type,
            key: self.bytes(record.key),
            value: self.bytes(record.value),
            headers,
        };
        Bound::new(self.py, record)
    }
}

/// See `_krust.pyi`.
#[pyclass(frozen, name = "Consumer", module = "krust._krust")]
pub(super) struct PyConsumer {
    guarded: GuardedCore<ConsumerState>,
}

/// Appends records of one opened chunk, until `list` has `limit`.
fn append_records(list: &Bound<'_, PyList>, chunk: &mut Chunk, limit: usize) -> PyResult<()> {
    let factory = RecordFactory::new(list.py(), chunk);
    let mut failed = None;
    let shown = chunk.visit(|record, origin| {
        let added = factory.record(record, origin).and_then(|record| list.append(record));
        failed = added.err();
        failed.is_none() && list.len() < limit
    });
    match failed {
        Some(error) => Err(error),
        None => shown.map_err(|error| of_client(list.py(), &error)),
    }
}

/// See `_krust.pyi`.
#[pyfunction]
pub(super) fn records<'py>(
    py: Python<'py>,
    topic: &str,
    partition: i32,
    first: i64,
    fetched: &[u8],
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let failed = |error: client::Error| of_client(py, &error);
    let mut chunk = Chunk::of((Arc::from(topic), partition), first, fetched).map_err(failed)?;
    while chunk.open().map_err(failed)? {
        append_records(&list, &mut chunk, usize::MAX)?;
    }
    Ok(list)
}

#[pymethods]
impl PyConsumer {
    #[new]
    #[pyo3(signature = (bootstrap, options=None))]
    fn new(py: Python<'_>, bootstrap: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let make = |cluster, properties: &mut ClientProperties<'_>| {
            let core = CoreConsumer::new(cluster, config(properties, ConsumerConfig::default())?);
            Ok(ConsumerState { core, chunks: VecDeque::new(), builder: None, deferred_error: None })
        };
        Ok(Self { guarded: GuardedCore::new(py, (bootstrap, options), make)? })
    }

    #[pyo3(signature = (assignments, *, keep=false))]
    fn assign(
        &self,
        py: Python<'_>,
        assignments: Vec<(String, i32, i64, Option<i64>)>,
        keep: bool,
    ) -> PyResult<()> {
        let assignments: Vec<_> = assignments
            .into_iter()
            .map(|(topic, partition, offset, end)| Assignment { topic, partition, offset, end })
            .collect();
        self.guarded.run(py, |state| {
            if keep {
                state.core.add(&assignments);
            } else {
                state.deferred_error = None;
                state.chunks.clear();
                state.core.assign(&assignments);
            }
            Ok(())
        })
    }

    fn unassign(&self, py: Python<'_>, positions: Vec<(String, i32)>) -> PyResult<()> {
        self.guarded.run(py, |state| {
            for (topic, partition) in &positions {
                state.drop_chunks(topic, *partition);
                state.core.remove(topic, *partition);
            }
            Ok(())
        })
    }

    fn seek(&self, py: Python<'_>, topic: &str, partition: i32, offset: i64) -> PyResult<bool> {
        self.guarded.run(py, |state| {
            state.drop_chunks(topic, partition);
            Ok(state.core.seek(topic, partition, offset))
        })
    }

    fn pause(&self, py: Python<'_>, positions: Vec<PositionRow>) -> PyResult<()> {
        self.guarded.run(py, |state| {
            for (topic, partition, offset) in &positions {
                state.drop_chunks(topic, *partition);
                state.core.seek(topic, *partition, *offset);
                state.core.pause(topic, *partition, true);
            }
            Ok(())
        })
    }

    fn resume(&self, py: Python<'_>, positions: Vec<(String, i32)>) -> PyResult<()> {
        self.guarded.run(py, |state| {
            for (topic, partition) in &positions {
                state.core.pause(topic, *partition, false);
            }
            Ok(())
        })
    }

    #[pyo3(signature = (timeout_ms, limit=1000))]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        timeout_ms: u64,
        limit: usize,
    ) -> PyResult<(Bound<'py, PyList>, Vec<PositionRow>)> {
        let (list, limit) = (PyList::empty(py), limit.max(1));
        let mut time = Some(Duration::from_millis(timeout_ms));
        let mut next = NextPositions::new();
        while list.len() < limit {
            let chunk = self.guarded.run(py, |state| state.next(time, &mut next))?;
            let Some(mut chunk) = chunk else { break };
            time = None;
            append_records(&list, &mut chunk, limit)?;
            set_position(&mut next, &chunk);
            self.guarded.run(py, |state| {
                state.chunks.push_front(chunk);
                Ok(())
            })?;
        }
        Ok((list, position_rows(next)))
    }

    #[pyo3(signature = (timeout_ms, columns, batch_rows=65_536, batch_bytes=8_388_608))]
    fn poll_arrow(
        &self,
        py: Python<'_>,
        timeout_ms: u64,
        columns: Vec<String>,
        batch_rows: usize,
        batch_bytes: usize,
    ) -> PyResult<(ArrowBatch, Vec<PositionRow>)> {
        let limits = ScanLimits { rows: batch_rows, bytes: batch_bytes };
        let time = Duration::from_millis(timeout_ms);
        let (batch, positions) = self.guarded.run(py, |s| s.columns(time, (columns, limits)))?;
        Ok((ArrowBatch::new(batch), position_rows(positions)))
    }

    fn count(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<(u64, u64)> {
        self.guarded.run(py, |state| state.count(Duration::from_millis(timeout_ms)))
    }

    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.guarded.run(py, |state| Ok(state.chunks.is_empty() && state.core.is_done()))
    }

    fn positions(&self, py: Python<'_>) -> PyResult<Vec<(String, i32, i64, i64)>> {
        self.guarded.run(py, |state| {
            let positions = state.core.positions();
            Ok(positions.map(|(topic, p, at, high)| (topic.to_owned(), p, at, high)).collect())
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.guarded.close(py, |state| state.core.close())
    }

    fn out_of_range(&self, py: Python<'_>) -> PyResult<Vec<PositionRow>> {
        self.guarded.run(py, |state| {
            let out_of_range = state.core.out_of_range();
            Ok(out_of_range
                .map(|(topic, partition, at)| (topic.to_owned(), partition, at))
                .collect())
        })
    }
}

/// Takes the fetch configuration out of `properties`; the rest is that of `default`.
pub(super) fn config(
    properties: &mut ClientProperties<'_>,
    default: ConsumerConfig,
) -> client::Result<ConsumerConfig> {
    Ok(ConsumerConfig {
        min_bytes: properties.parse("fetch.min.bytes")?.unwrap_or(default.min_bytes),
        max_wait: properties.duration("fetch.max.wait.ms")?.unwrap_or(default.max_wait),
        max_bytes: properties.parse("fetch.max.bytes")?.unwrap_or(default.max_bytes),
        partition_max_bytes: properties
            .parse("max.partition.fetch.bytes")?
            .unwrap_or(default.partition_max_bytes),
        rack: properties.take("client.rack")?.unwrap_or(default.rack),
        metadata_max_age: properties
            .duration("metadata.max.age.ms")?
            .unwrap_or(default.metadata_max_age),
        read_committed: properties.read_committed()?,
        report_out_of_range: properties
            .boolean("krust.report.out.of.range")?
            .unwrap_or(default.report_out_of_range),
    })
}
