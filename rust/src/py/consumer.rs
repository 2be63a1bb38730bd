//! `_krust.Consumer`: records out of fetched batches, a bounded number at a time.
//!
//! A chunk is fetched and inflated detached; then it is taken out of the shell, walked attached
//! without any lock, and put back with what is left of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::arrow::ArrowBatch;
use super::client::{Given, Shell};
use super::errors::of_client;
use crate::client;
use crate::client::chunk::{Chunk, Origin};
use crate::client::consumer::{Assignment, Config, Consumer as Core};
use crate::columns::Projection;
use crate::columns::builder::{Builder, Limits};
use crate::record::batch::Record as View;

/// The core's consumer, and what it fetched that Python has not taken yet.
struct State {
    core: Core,
    chunks: VecDeque<Chunk>,
    /// What fills columns, and the columns; it keeps the buffers that readers gave back.
    builder: Option<(Vec<String>, Builder)>,
    /// What went wrong behind the batch that was given out.
    late: Option<client::Error>,
}

/// Topic, partition, offset.
type Place = (String, i32, i64);
type Places = Vec<(Arc<str>, i32, i64)>;

/// Notes where the partition of a chunk goes on.
fn note(places: &mut Places, chunk: &Chunk) {
    let place = (Arc::clone(&chunk.topic), chunk.partition, chunk.position());
    match places
        .iter_mut()
        .find(|(topic, partition, _)| *topic == chunk.topic && *partition == chunk.partition)
    {
        Some(known) => *known = place,
        None => places.push(place),
    }
}

fn named(places: Places) -> Vec<Place> {
    let named =
        |(topic, partition, offset): (Arc<str>, i32, i64)| (topic.to_string(), partition, offset);
    places.into_iter().map(named).collect()
}

impl State {
    /// The next chunk, opened; fetched within `time` where none is here.
    fn next(&mut self, time: Option<Duration>) -> client::Result<Option<Chunk>> {
        if let Some(error) = self.late.take() {
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
        }
        Ok(None)
    }

    /// What has come as columns, and where each partition of it goes on.
    fn columns(
        &mut self,
        time: Duration,
        (columns, limits): (Vec<String>, Limits),
    ) -> client::Result<(RecordBatch, Places)> {
        let mut builder = match self.builder.take() {
            Some((known, builder)) if known == columns && *builder.asked() == limits => builder,
            _ => Builder::new(Projection::of(&columns)?, limits),
        };
        let (mut places, mut time) = (Vec::new(), Some(time));
        while !builder.is_full() {
            match self.take(&mut builder, &mut places, time.take()) {
                Ok(true) => {}
                Err(error) if builder.rows() == 0 => return Err(error),
                other => {
                    self.late = other.err();
                    break;
                }
            }
        }
        let schema = builder.projection().schema();
        let batch = builder.finish()?.unwrap_or_else(|| RecordBatch::new_empty(schema));
        self.builder = Some((columns, builder));
        Ok((batch, places))
    }

    /// Adds a chunk to a batch; `false`: there is none.
    fn take(
        &mut self,
        builder: &mut Builder,
        places: &mut Places,
        time: Option<Duration>,
    ) -> client::Result<bool> {
        let Some(mut chunk) = self.next(time)? else { return Ok(false) };
        let taken = builder.take(&mut chunk);
        note(places, &chunk);
        if !taken? {
            self.chunks.push_front(chunk);
        }
        Ok(true)
    }

    fn count(&mut self, time: Duration) -> client::Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        for mut chunk in self.core.poll(time)? {
            bytes += u64::try_from(chunk.size()).unwrap_or(u64::MAX);
            chunk.each(|_, _| {
                records += 1;
                true
            })?;
        }
        Ok((records, bytes))
    }

    /// Drops what was fetched of one partition and not given out.
    fn drop_chunks(&mut self, topic: &str, partition: i32) {
        self.late = None;
        self.chunks.retain(|chunk| chunk.partition != partition || *chunk.topic != *topic);
    }
}

/// See `_krust.pyi`.
#[pyclass(frozen, module = "krust._krust")]
pub(super) struct Record {
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
impl Record {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (key, value) = (self.key.bind(py).repr()?, self.value.bind(py).repr()?);
        let (topic, partition, offset) = (self.topic.bind(py), self.partition, self.offset);
        Ok(format!("<Record {topic}:{partition} offset {offset} key {key} value {value}>"))
    }
}

/// What the records of one chunk share.
struct Maker<'py> {
    py: Python<'py>,
    topic: Py<PyString>,
    partition: i32,
    none: Py<PyAny>,
    no_headers: Py<PyTuple>,
}

impl<'py> Maker<'py> {
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

    fn record(&self, record: &View<'_>, origin: &Origin) -> PyResult<Bound<'py, Record>> {
        let headers = if record.headers.is_empty() {
            self.no_headers.clone_ref(self.py)
        } else {
            let headers = record.headers.iter().map(|(name, value)| {
                (String::from_utf8_lossy(name).into_owned(), self.bytes(value))
            });
            PyTuple::new(self.py, headers.collect::<Vec<_>>())?.unbind()
        };
        let record = Record {
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
#[pyclass(frozen, module = "krust._krust")]
pub(super) struct Consumer {
    shell: Shell<State>,
}

/// Records of one opened chunk, until `list` has `limit`.
fn fill(list: &Bound<'_, PyList>, chunk: &mut Chunk, limit: usize) -> PyResult<()> {
    let maker = Maker::new(list.py(), chunk);
    let mut failed = None;
    let shown = chunk.show(|record, origin| {
        let added = maker.record(record, origin).and_then(|record| list.append(record));
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
        fill(&list, &mut chunk, usize::MAX)?;
    }
    Ok(list)
}

#[pymethods]
impl Consumer {
    #[new]
    #[pyo3(signature = (bootstrap, options=None))]
    fn new(py: Python<'_>, bootstrap: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let make = |cluster, given: &mut Given<'_>| {
            let core = Core::new(cluster, config(given, Config::default())?);
            Ok(State { core, chunks: VecDeque::new(), builder: None, late: None })
        };
        Ok(Self { shell: Shell::new(py, (bootstrap, options), make)? })
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
        self.shell.run(py, |state| {
            if keep {
                state.core.add(&assignments);
            } else {
                state.late = None;
                state.chunks.clear();
                state.core.assign(&assignments);
            }
            Ok(())
        })
    }

    fn unassign(&self, py: Python<'_>, places: Vec<(String, i32)>) -> PyResult<()> {
        self.shell.run(py, |state| {
            for (topic, partition) in &places {
                state.drop_chunks(topic, *partition);
                state.core.remove(topic, *partition);
            }
            Ok(())
        })
    }

    fn seek(&self, py: Python<'_>, topic: &str, partition: i32, offset: i64) -> PyResult<bool> {
        self.shell.run(py, |state| {
            state.drop_chunks(topic, partition);
            Ok(state.core.seek(topic, partition, offset))
        })
    }

    fn pause(&self, py: Python<'_>, places: Vec<Place>) -> PyResult<()> {
        self.shell.run(py, |state| {
            for (topic, partition, offset) in &places {
                state.drop_chunks(topic, *partition);
                state.core.seek(topic, *partition, *offset);
                state.core.pause(topic, *partition, true);
            }
            Ok(())
        })
    }

    fn resume(&self, py: Python<'_>, places: Vec<(String, i32)>) -> PyResult<()> {
        self.shell.run(py, |state| {
            for (topic, partition) in &places {
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
    ) -> PyResult<(Bound<'py, PyList>, Vec<Place>)> {
        let (list, limit) = (PyList::empty(py), limit.max(1));
        let mut time = Some(Duration::from_millis(timeout_ms));
        let mut next = Places::new();
        while list.len() < limit {
            let Some(mut chunk) = self.shell.run(py, |state| state.next(time))? else { break };
            time = None;
            fill(&list, &mut chunk, limit)?;
            note(&mut next, &chunk);
            self.shell.run(py, |state| {
                state.chunks.push_front(chunk);
                Ok(())
            })?;
        }
        Ok((list, named(next)))
    }

    #[pyo3(signature = (timeout_ms, columns, batch_rows=65_536, batch_bytes=8_388_608))]
    fn poll_arrow(
        &self,
        py: Python<'_>,
        timeout_ms: u64,
        columns: Vec<String>,
        batch_rows: usize,
        batch_bytes: usize,
    ) -> PyResult<(ArrowBatch, Vec<Place>)> {
        let limits = Limits { rows: batch_rows, bytes: batch_bytes };
        let time = Duration::from_millis(timeout_ms);
        let (batch, places) = self.shell.run(py, |s| s.columns(time, (columns, limits)))?;
        Ok((ArrowBatch::new(batch), named(places)))
    }

    fn count(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<(u64, u64)> {
        self.shell.run(py, |state| state.count(Duration::from_millis(timeout_ms)))
    }

    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.shell.run(py, |state| Ok(state.chunks.is_empty() && state.core.done()))
    }

    fn positions(&self, py: Python<'_>) -> PyResult<Vec<(String, i32, i64, i64)>> {
        self.shell.run(py, |state| {
            let positions = state.core.positions();
            Ok(positions.map(|(topic, p, at, high)| (topic.to_owned(), p, at, high)).collect())
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shell.close(py, |state| state.core.close())
    }

    fn strayed(&self, py: Python<'_>) -> PyResult<Vec<Place>> {
        self.shell.run(py, |state| {
            let strayed = state.core.strayed();
            Ok(strayed.map(|(topic, partition, at)| (topic.to_owned(), partition, at)).collect())
        })
    }
}

/// How to fetch, taken out of `given`; `default` where that says nothing.
pub(super) fn config(given: &mut Given<'_>, default: Config) -> client::Result<Config> {
    let isolation = given.take("isolation.level")?;
    Ok(Config {
        min_bytes: given.parse("fetch.min.bytes")?.unwrap_or(default.min_bytes),
        max_wait: given.time("fetch.max.wait.ms")?.unwrap_or(default.max_wait),
        max_bytes: given.parse("fetch.max.bytes")?.unwrap_or(default.max_bytes),
        partition_max_bytes: given
            .parse("max.partition.fetch.bytes")?
            .unwrap_or(default.partition_max_bytes),
        read_committed: isolation.as_deref() == Some("read_committed"),
        tell_strayed: given.switch("krust.tell.strayed")?.unwrap_or(default.tell_strayed),
    })
}
