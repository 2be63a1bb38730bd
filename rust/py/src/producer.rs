//! `_krust.Producer`: collects records from Python into batches.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::client::{ClientProperties, GuardedCore};
use super::errors::of_client;
use krust::client::producer::{DeliveryReport, Producer as Core, ProducerConfig};
use krust::client::record_layout::{FieldRole, RecordLayout};
use krust::client::{self, Error};
use krust::clock::{Clock, SystemClock};
use krust::record::batch::NewRecord;
use krust::record::compression::Codec;

/// Key, value, headers, partition, timestamp.
type RecordArguments<'py> = (
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
    Vec<(String, Option<Bound<'py, PyBytes>>)>,
    Option<i32>,
    Option<i64>,
);

/// The arguments, copied out of Python.
struct RecordToProduce {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    partition: Option<i32>,
    timestamp: i64,
}

impl RecordToProduce {
    fn of((key, value, headers, partition, timestamp): RecordArguments<'_>, now: i64) -> Self {
        let copy = |bytes: Bound<'_, PyBytes>| bytes.as_bytes().to_vec();
        Self {
            key: key.map(copy),
            value: value.map(copy),
            headers: headers.into_iter().map(|(name, value)| (name, value.map(copy))).collect(),
            partition,
            timestamp: timestamp.unwrap_or(now),
        }
    }

    fn send(&self, core: &mut Core, topic: &str) -> client::Result<()> {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let (key, value) = (self.key.as_deref(), self.value.as_deref());
        let entry = NewRecord { timestamp: self.timestamp, key, value, headers: &headers };
        core.send(topic, self.partition, &entry)
    }
}

/// The fields that all records of a block share, besides topic and layout.
struct BlockDefaults {
    key: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    partition: Option<i32>,
    empty_is_null: bool,
    limit: usize,
}

impl BlockDefaults {
    /// Sends the records of `block`. Returns how many, and how many bytes they took.
    fn send(
        &self,
        core: &mut Core,
        (topic, layout): (&str, &RecordLayout),
        block: &[u8],
    ) -> client::Result<(usize, usize)> {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let timestamp = SystemClock.wall_ms();
        let (mut count, mut rest) = (0, block);
        while count < self.limit
            && let Some((fields, after)) = layout.split_record(rest)
        {
            let key = fields.key.or(self.key.as_deref());
            let value = fields.value.filter(|value| !(self.empty_is_null && value.is_empty()));
            let entry = NewRecord { timestamp, key, value, headers: &headers };
            core.send(topic, self.partition, &entry)?;
            (count, rest) = (count + 1, after);
        }
        core.poll()?;
        Ok((count, block.len() - rest.len()))
    }
}

/// The layout of a block's records from its letters (k: key, v: value, any other: skipped) and
/// literals.
fn layout(fields: Vec<(char, Vec<u8>)>) -> client::Result<RecordLayout> {
    let role = |letter| match letter {
        'k' => FieldRole::Key,
        'v' => FieldRole::Value,
        _ => FieldRole::Unused,
    };
    let fields = fields.into_iter().map(|(letter, literal)| (role(letter), literal));
    let refused = || Error::Invalid("each field of a record ends with a literal".to_owned());
    RecordLayout::new(fields.collect()).ok_or_else(refused)
}

/// See `_krust.pyi`.
#[pyclass(frozen, name = "Producer", module = "krust._krust")]
pub(super) struct PyProducer {
    guarded: GuardedCore<Core>,
}

#[pymethods]
impl PyProducer {
    #[new]
    #[pyo3(signature = (bootstrap, options=None))]
    fn new(py: Python<'_>, bootstrap: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let make = |cluster, properties: &mut ClientProperties<'_>| {
            Core::new(cluster, config(properties)?)
        };
        Ok(Self { guarded: GuardedCore::new(py, (bootstrap, options), make)? })
    }

    fn send<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        records: Vec<RecordArguments<'py>>,
    ) -> PyResult<()> {
        let now = SystemClock.wall_ms();
        let records: Vec<_> =
            records.into_iter().map(|arguments| RecordToProduce::of(arguments, now)).collect();
        self.guarded.run(py, |core| {
            records.iter().try_for_each(|record| record.send(core, topic))?;
            core.poll()
        })
    }

    #[pyo3(signature = (topic, block, fields, *, key, headers, partition, empty_is_null, limit))]
    #[expect(clippy::too_many_arguments, reason = "named in Python")]
    fn send_block<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        block: &Bound<'py, PyBytes>,
        fields: Vec<(char, Vec<u8>)>,
        key: Option<Vec<u8>>,
        headers: Vec<(String, Option<Vec<u8>>)>,
        partition: Option<i32>,
        empty_is_null: bool,
        limit: Option<usize>,
    ) -> PyResult<(usize, usize)> {
        let layout = layout(fields).map_err(|error| of_client(py, &error))?;
        let limit = limit.unwrap_or(usize::MAX);
        let defaults = BlockDefaults { key, headers, partition, empty_is_null, limit };
        let block = block.as_bytes();
        self.guarded.run(py, |core| defaults.send(core, (topic, &layout), block))
    }

    #[pyo3(signature = (topic, value, count, *, partition=None))]
    fn repeat(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Vec<u8>,
        count: u64,
        partition: Option<i32>,
    ) -> PyResult<()> {
        self.guarded.run(py, |core| {
            let timestamp = SystemClock.wall_ms();
            let entry = NewRecord { timestamp, value: Some(&value), ..NewRecord::default() };
            for _ in 0..count {
                core.send(topic, partition, &entry)?;
            }
            core.poll()
        })
    }

    fn poll(&self, py: Python<'_>) -> PyResult<()> {
        self.guarded.run(py, Core::poll)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.guarded.run(py, Core::flush)
    }

    fn begin_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.guarded.run(py, |core| core.begin_transaction(&core.transaction_wait()))
    }

    fn commit_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.guarded.run(py, |core| core.commit_transaction(&core.transaction_wait()))
    }

    fn abort_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.guarded.run(py, |core| core.abort_transaction(&core.transaction_wait()))
    }

    fn delivered<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let delivered = self.guarded.run(py, |core| Ok(core.take_delivery_reports()))?;
        let list = PyList::empty(py);
        for DeliveryReport { topic, partition, base_offset, count, error, .. } in delivered {
            let error = error.map(|error| of_client(py, &error));
            list.append((&*topic, partition, base_offset, count, error))?;
        }
        Ok(list)
    }
}

/// Reads a producer's configuration.
pub(super) fn config(properties: &mut ClientProperties<'_>) -> client::Result<ProducerConfig> {
    let default = ProducerConfig::default();
    let size = |text: Option<usize>, default| text.unwrap_or(default);
    let acks = match properties.take("acks")?.as_deref() {
        None | Some("all" | "-1") => -1,
        Some("0") => 0,
        Some("1") => 1,
        Some(other) => return Err(Error::Invalid(format!("acks: {other:?} is not 0, 1 or all"))),
    };
    let codec = match properties.take("compression.type")? {
        None => default.codec,
        Some(name) => Codec::from_name(&name)
            .ok_or_else(|| Error::Invalid(format!("compression.type: there is no {name:?}")))?,
    };
    Ok(ProducerConfig {
        acks,
        codec,
        level: properties.parse("compression.level")?,
        batch_bytes: size(properties.parse("batch.size")?, default.batch_bytes),
        linger: properties.duration("linger.ms")?.unwrap_or(default.linger),
        request_bytes: size(properties.parse("max.request.size")?, default.request_bytes),
        buffer_bytes: size(properties.parse("buffer.memory")?, default.buffer_bytes),
        delivery_timeout: properties
            .duration("delivery.timeout.ms")?
            .unwrap_or(default.delivery_timeout)
            .max(Duration::from_millis(1)),
        idempotent: properties.boolean("enable.idempotence")?.unwrap_or(default.idempotent),
        transactional_id: properties.take("transactional.id")?,
        transaction_timeout: properties
            .duration("transaction.timeout.ms")?
            .unwrap_or(default.transaction_timeout),
        create_topics: properties.boolean("allow.auto.create.topics")?.unwrap_or(true),
    })
}
