//! `_krust.Consumer`: records out of fetched batches, a bounded number at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::client::{Given, Shell};
use crate::client;
use crate::client::consumer::{Assignment, Chunk, Config, Consumer as Core};

/// The core's consumer, and what it fetched that Python has not taken yet.
struct State {
    core: Core,
    chunks: VecDeque<Chunk>,
}

/// One record, copied out of its batch.
struct Row {
    topic: Arc<str>,
    partition: i32,
    offset: i64,
    timestamp: i64,
    timestamp_type: i8,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl State {
    fn rows(&mut self, time: Duration, limit: usize) -> client::Result<Vec<Row>> {
        if self.chunks.is_empty() {
            self.chunks.extend(self.core.poll(time)?);
        }
        let mut rows = Vec::new();
        while let Some(chunk) = self.chunks.front_mut() {
            let (topic, partition) = (Arc::clone(&chunk.topic), chunk.partition);
            chunk.each(&mut |record, origin| {
                let copy = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                let header = |(name, value): (&[u8], Option<&[u8]>)| {
                    (String::from_utf8_lossy(name).into_owned(), copy(value))
                };
                rows.push(Row {
                    topic: Arc::clone(&topic),
                    partition,
                    offset: record.offset,
                    timestamp: record.timestamp,
                    timestamp_type: origin.timestamp_type,
                    key: copy(record.key),
                    value: copy(record.value),
                    headers: record.headers.iter().map(header).collect(),
                });
                rows.len() < limit
            })?;
            if rows.len() >= limit {
                let last = rows.last().map_or(0, |row| row.offset);
                chunk.skip_to(last + 1);
                break;
            }
            self.chunks.pop_front();
        }
        Ok(rows)
    }

    fn count(&mut self, time: Duration) -> client::Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        for chunk in self.core.poll(time)? {
            bytes += u64::try_from(chunk.size()).unwrap_or(u64::MAX);
            chunk.each(&mut |_, _| {
                records += 1;
                true
            })?;
        }
        Ok((records, bytes))
    }
}

/// See `_krust.pyi`.
#[pyclass(frozen, module = "krust._krust")]
pub(super) struct Consumer {
    shell: Shell<State>,
}

#[pymethods]
impl Consumer {
    #[new]
    #[pyo3(signature = (bootstrap, options=None))]
    fn new(py: Python<'_>, bootstrap: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let make = |cluster, given: &mut Given<'_>| {
            Ok(State { core: Core::new(cluster, config(given)?), chunks: VecDeque::new() })
        };
        Ok(Self { shell: Shell::new(py, (bootstrap, options), make)? })
    }

    fn assign(
        &self,
        py: Python<'_>,
        assignments: Vec<(String, i32, i64, Option<i64>)>,
    ) -> PyResult<()> {
        let assignments: Vec<_> = assignments
            .into_iter()
            .map(|(topic, partition, offset, end)| Assignment { topic, partition, offset, end })
            .collect();
        self.shell.run(py, |state| {
            state.chunks.clear();
            state.core.assign(&assignments);
            Ok(())
        })
    }

    #[pyo3(signature = (timeout_ms, limit=1000))]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        timeout_ms: u64,
        limit: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let time = Duration::from_millis(timeout_ms);
        let rows = self.shell.run(py, |state| state.rows(time, limit.max(1)))?;
        let list = PyList::empty(py);
        let mut name: Option<(Arc<str>, Bound<'py, PyString>)> = None;
        for row in rows {
            let topic = match &name {
                Some((last, text)) if *last == row.topic => text.clone(),
                _ => PyString::new(py, &row.topic),
            };
            list.append(tuple(py, &row, &topic)?)?;
            name = Some((row.topic, topic));
        }
        Ok(list)
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
}

/// (topic, partition, offset, timestamp, timestamp_type, key, value, headers)
fn tuple<'py>(
    py: Python<'py>,
    row: &Row,
    topic: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyTuple>> {
    let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| PyBytes::new(py, bytes));
    let headers: Vec<_> = row.headers.iter().map(|(name, v)| (name.as_str(), bytes(v))).collect();
    let place = (topic, row.partition, row.offset, row.timestamp, row.timestamp_type);
    let (topic, partition, offset, timestamp, kind) = place;
    let (key, value) = (bytes(&row.key), bytes(&row.value));
    (topic, partition, offset, timestamp, kind, key, value, headers).into_pyobject(py)
}

fn config(given: &mut Given<'_>) -> client::Result<Config> {
    let default = Config::default();
    let isolation = given.take("isolation.level")?;
    Ok(Config {
        min_bytes: given.parse("fetch.min.bytes")?.unwrap_or(default.min_bytes),
        max_wait: given.time("fetch.max.wait.ms")?.unwrap_or(default.max_wait),
        max_bytes: given.parse("fetch.max.bytes")?.unwrap_or(default.max_bytes),
        partition_max_bytes: given
            .parse("max.partition.fetch.bytes")?
            .unwrap_or(default.partition_max_bytes),
        read_committed: isolation.as_deref() == Some("read_committed"),
    })
}
