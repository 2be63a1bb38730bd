//! `_krust.LogDump` and `_krust.log_verify`: reading log files without a broker.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use krust::record::batch::{Batch, Record};
use krust::record::compression::{Codec, Inflate};
use krust::record::{RecordError, legacy};
use krust::storage::inspect::{self, BatchDump, DumpedBatch};

/// The most bytes that one batch may inflate to.
const INFLATED: usize = 256 << 20;

/// See `_krust.pyi`.
#[pyclass(frozen, module = "krust._krust")]
pub(super) struct LogDump {
    path: PathBuf,
    dump: Mutex<BatchDump>,
}

#[pymethods]
impl LogDump {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let dump = inspect::dump(&path).map_err(|error| failed(&path, &error))?;
        Ok(Self { path, dump: Mutex::new(dump) })
    }

    #[pyo3(signature = (limit, *, records=false))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
        records: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let found = py.detach(|| {
            let mut dump = self.dump.lock();
            let mut found = Vec::new();
            while found.len() < limit
                && let Some(item) = dump.next()
            {
                let bytes = match &item {
                    Ok(batch) if records => Some(dump.read(batch)),
                    _ => None,
                };
                found.push((item, bytes));
            }
            found
        });
        let list = PyList::empty(py);
        for (item, bytes) in found {
            let dict = match item {
                Ok(batch) => describe(py, &batch)?,
                Err(problem) => {
                    let dict = PyDict::new(py);
                    dict.set_item("position", problem.position)?;
                    dict.set_item("problem", problem.what)?;
                    dict
                }
            };
            if let Some(bytes) = bytes {
                let bytes = bytes.map_err(|error| failed(&self.path, &error))?;
                match records_of(py, &bytes)? {
                    Ok(records) => dict.set_item("records", records)?,
                    Err(problem) => dict.set_item("problem", problem.to_string())?,
                }
            }
            list.append(dict)?;
        }
        Ok(list)
    }
}

/// File, position, what is wrong, what to do.
type ProblemRow = (String, u64, String, &'static str);

/// See `_krust.pyi`.
#[pyfunction]
pub(super) fn log_verify(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<ProblemRow>> {
    problem_rows(&directory, py.detach(|| inspect::verify(&directory)))
}

/// See `_krust.pyi`.
#[pyfunction]
pub(super) fn log_dir_verify(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<ProblemRow>> {
    problem_rows(&directory, py.detach(|| inspect::verify_files(&directory)))
}

fn problem_rows(
    directory: &Path,
    found: std::io::Result<Vec<inspect::FileProblem>>,
) -> PyResult<Vec<ProblemRow>> {
    let row =
        |p: inspect::FileProblem| (p.path.display().to_string(), p.position, p.what, p.remedy);
    let problems = found.map_err(|error| failed(directory, &error))?;
    Ok(problems.into_iter().map(row).collect())
}

fn failed(path: &Path, error: &std::io::Error) -> PyErr {
    match error.raw_os_error() {
        // Python chooses the class by the number (FileNotFoundError and so on).
        Some(number) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path.display().to_string()))
        }
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

fn describe<'py>(py: Python<'py>, batch: &DumpedBatch) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("position", batch.position)?;
    dict.set_item("size_bytes", batch.size)?;
    dict.set_item("magic", batch.magic)?;
    dict.set_item("base_offset", batch.base_offset)?;
    dict.set_item("last_offset", batch.last_offset)?;
    dict.set_item("max_timestamp", batch.max_timestamp)?;
    dict.set_item("crc_ok", batch.crc_ok)?;
    if let Some(header) = &batch.header {
        let codec = Codec::from_bits(header.attributes).map_or("unknown", Codec::name);
        dict.set_item("count", header.record_count)?;
        dict.set_item("codec", codec)?;
        dict.set_item("leader_epoch", header.leader_epoch)?;
        dict.set_item("producer_id", header.producer_id)?;
        dict.set_item("producer_epoch", header.producer_epoch)?;
        dict.set_item("base_sequence", header.base_sequence)?;
        dict.set_item("log_append_time", header.attributes & 0x08 != 0)?;
        dict.set_item("transactional", header.attributes & 0x10 != 0)?;
        dict.set_item("control", header.attributes & 0x20 != 0)?;
        dict.set_item("delete_horizon", header.attributes & 0x40 != 0)?;
    }
    Ok(dict)
}

/// (offset, timestamp, key, value, headers) of each record, or the reason why they cannot be read.
fn records_of<'py>(
    py: Python<'py>,
    bytes: &[u8],
) -> PyResult<Result<Bound<'py, PyList>, RecordError>> {
    let list = PyList::empty(py);
    let show = |record: &Record<'_>| -> PyResult<()> {
        let copy = |data: Option<&[u8]>| data.map(|data| PyBytes::new(py, data));
        let header = |(name, value): (&[u8], Option<&[u8]>)| {
            (String::from_utf8_lossy(name).into_owned(), copy(value))
        };
        let headers: Vec<_> = record.headers.iter().map(header).collect();
        let (key, value) = (copy(record.key), copy(record.value));
        list.append((record.offset, record.timestamp, key, value, headers))
    };
    let mut held = Vec::new();
    if bytes.get(16).is_some_and(|magic| *magic < 2) {
        let records = legacy::iter(bytes)
            .next()
            .unwrap_or(Err(RecordError::Corrupt("an empty message")))
            .and_then(|message| Ok(legacy::records(&message, INFLATED, &mut held)?.collect()));
        let records: Vec<Record<'_>> = match records {
            Ok(records) => records,
            Err(error) => return Ok(Err(error)),
        };
        records.iter().try_for_each(show)?;
        return Ok(Ok(list));
    }
    let batch = match Batch::parse(bytes) {
        Ok(batch) => batch,
        Err(error) => return Ok(Err(error)),
    };
    let records = if batch.codec() == Codec::None {
        batch.records()
    } else {
        let inflated = Inflate::new(batch.codec(), batch.payload())
            .map_err(|_| RecordError::Corrupt("a codec's header"))
            .and_then(|inflate| inflate.read_all(INFLATED, &mut held));
        if let Err(error) = inflated {
            return Ok(Err(error));
        }
        batch.records_in(&held)
    };
    for record in records {
        match record {
            Ok(record) => show(&record)?,
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(list))
}
