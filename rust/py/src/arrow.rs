//! `_krust.scan`: ranges of offsets as an Arrow C stream in a PyCapsule, without pyarrow. It also
//! reads any Arrow table as batches.
//!
//! When the capsule's reader asks for a batch, the batch is fetched and decoded, detached from the
//! interpreter. An Arrow stream can only fail with a text, which the reader turns into its own
//! error. `failure` returns the original exception, for example KeyboardInterrupt.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::client::{ClientProperties, cluster_options, forked_error};
use super::errors::{Signals, of_client};
use krust::client::{self, Cluster, Error};
use krust::columns::Projection;
use krust::columns::builder::{ColumnsBuilder, ScanLimits};
use krust::columns::local;
use krust::columns::remote::{self, RemoteOptions};
use krust::columns::scan::{MissingOffsets, OffsetRange, Scan};

/// See `_krust.pyi`.
#[pyclass(frozen, module = "krust._krust")]
pub(super) struct ArrowStream {
    shared: Arc<SharedScan>,
    taken: AtomicBool,
}

/// The scan that the stream and its Python object share.
struct SharedScan {
    scan: Mutex<Scan>,
    schema: SchemaRef,
    signals: Arc<Signals>,
    failure: Mutex<Option<PyErr>>,
    pid: u32,
}

impl SharedScan {
    /// The next batch, or the exception.
    fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        if std::process::id() != self.pid {
            return Err(forked_error(py));
        }
        py.detach(|| self.scan.lock().pull()).map_err(|error| self.signals.exception(py, &error))
    }
}

/// The reader that the Arrow stream calls.
struct BatchReader {
    shared: Arc<SharedScan>,
    is_done: bool,
}

impl Iterator for BatchReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let ended = || ArrowError::IoError("Python is ending".to_owned(), interrupted());
        let pulled = Python::try_attach(|py| {
            let pulled = self.shared.next(py);
            pulled.map_err(|raised| self.shared.fail(py, raised))
        });
        let pulled = pulled.unwrap_or_else(|| Err(ended()));
        self.is_done = !matches!(pulled, Ok(Some(_)));
        pulled.transpose()
    }
}

fn interrupted() -> std::io::Error {
    std::io::ErrorKind::Interrupted.into()
}

impl SharedScan {
    /// Keeps an exception for `failure`, and returns its text as an Arrow error.
    fn fail(&self, py: Python<'_>, raised: PyErr) -> ArrowError {
        let text = match raised.value(py).to_string() {
            text if text.is_empty() => raised.get_type(py).to_string(),
            text => text,
        };
        *self.failure.lock() = Some(raised);
        ArrowError::IoError(text, std::io::ErrorKind::Other.into())
    }
}

impl RecordBatchReader for BatchReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shared.schema)
    }
}

#[pymethods]
impl ArrowStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // the protocol lets a producer give what it has
        if self.taken.swap(true, Ordering::Relaxed) {
            return Err(PyValueError::new_err("this stream has been read; scan again"));
        }
        let pull = BatchReader { shared: Arc::clone(&self.shared), is_done: false };
        let stream = FFI_ArrowArrayStream::new(Box::new(pull));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.shared.schema)
    }

    fn failure(&self, py: Python<'_>) -> Option<PyErr> {
        self.shared.failure.lock().as_ref().map(|error| error.clone_ref(py))
    }

    fn positions(&self, py: Python<'_>) -> Vec<(String, i32, i64)> {
        py.detach(|| {
            let scan = self.shared.scan.lock();
            scan.positions().map(|(topic, p, next)| (topic.to_owned(), p, next)).collect()
        })
    }

    fn skipped(&self, py: Python<'_>) -> Vec<(String, i32, i64, i64)> {
        py.detach(|| {
            let scan = self.shared.scan.lock();
            let row = |range: &OffsetRange| {
                (range.topic.to_string(), range.partition, range.start, range.end)
            };
            scan.skipped().iter().map(row).collect()
        })
    }
}

/// See `_krust.pyi`.
#[pyclass(frozen, module = "krust._krust")]
pub(super) struct ArrowBatch {
    batch: RecordBatch,
}

impl ArrowBatch {
    pub(super) const fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

#[pymethods]
impl ArrowBatch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let array = FFI_ArrowArray::new(&StructArray::from(self.batch.clone()).into_data());
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        Ok((self.__arrow_c_schema__(py)?, array))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let once = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(once));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.batch.schema())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }
}

fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema);
    let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// See `_krust.pyi`.
#[pyfunction]
#[pyo3(signature = (
    ranges, columns, *, bootstrap=None, options=None, data_dirs=None, batch_rows=65_536,
    batch_bytes=8_388_608, lost="fail"
))]
#[expect(clippy::too_many_arguments, reason = "a source, a projection and limits")]
pub(super) fn scan(
    py: Python<'_>,
    ranges: Vec<(String, i32, i64, i64)>,
    columns: Vec<String>,
    bootstrap: Option<&str>,
    options: Option<&Bound<'_, PyDict>>,
    data_dirs: Option<Vec<PathBuf>>,
    batch_rows: usize,
    batch_bytes: usize,
    lost: &str,
) -> PyResult<ArrowStream> {
    let signals = Arc::new(Signals::default());
    let ranges = ranges.into_iter().map(|(topic, partition, start, end)| OffsetRange {
        topic: topic.into(),
        partition,
        start,
        end,
    });
    let mut properties = ClientProperties::new(options)?;
    let make = || -> client::Result<(Scan, SchemaRef)> {
        let projection = Projection::of(&columns)?;
        let schema = projection.schema();
        let limits = ScanLimits { rows: batch_rows, bytes: batch_bytes };
        let builder = ColumnsBuilder::new(projection, limits);
        let missing = missing_offsets(lost)?;
        let scan = match (bootstrap, data_dirs) {
            (Some(bootstrap), None) => {
                let options = cluster_options(bootstrap, &mut properties, &signals)?;
                let scan_options = remote_options(&mut properties, missing)?;
                remote::scan(Cluster::new(options), scan_options, ranges.collect(), builder)?
            }
            (None, Some(directories)) => {
                let scan_options = local::LocalOptions {
                    directories,
                    read_committed: properties.read_committed()?,
                    missing,
                };
                local::scan(
                    scan_options,
                    Arc::<Signals>::clone(&signals),
                    ranges.collect(),
                    builder,
                )?
            }
            _ => return Err(Error::Invalid("give either bootstrap or data_dirs".to_owned())),
        };
        properties.finish()?;
        Ok((scan, schema))
    };
    let (scan, schema) = make().map_err(|error| of_client(py, &error))?;
    let shared = SharedScan {
        scan: Mutex::new(scan),
        schema,
        signals: Arc::clone(&signals),
        failure: Mutex::new(None),
        pid: std::process::id(),
    };
    Ok(ArrowStream { shared: Arc::new(shared), taken: AtomicBool::new(false) })
}

/// See `_krust.pyi`.
#[pyfunction]
#[pyo3(signature = (data_dirs, topic, *, read_committed=false))]
pub(super) fn partitions(
    py: Python<'_>,
    data_dirs: Vec<PathBuf>,
    topic: &str,
    read_committed: bool,
) -> PyResult<Vec<(i32, i64, i64)>> {
    py.detach(|| local::partitions(&data_dirs, topic, read_committed))
        .map_err(|error| of_client(py, &error))
}

/// See `_krust.pyi`.
#[pyfunction]
pub(super) fn offset_at(
    py: Python<'_>,
    data_dirs: Vec<PathBuf>,
    topic: &str,
    partition: i32,
    timestamp_ms: i64,
) -> PyResult<i64> {
    py.detach(|| local::offset_at(&data_dirs, (topic, partition), timestamp_ms))
        .map(|offset| offset.unwrap_or(-1))
        .map_err(|error| of_client(py, &error))
}

/// The batches of any object with Arrow's PyCapsule interface.
pub(super) fn batches(table: &Bound<'_, PyAny>) -> PyResult<RecordBatches> {
    let wrong = |error: ArrowError| PyValueError::new_err(error.to_string());
    if table.hasattr("__arrow_c_stream__")? {
        let capsule = table.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let stream = take_stream(&capsule)?;
        let reader = RecordBatchStreamReader::try_new(stream).map_err(wrong)?;
        return Ok(Box::new(reader));
    }
    if !table.hasattr("__arrow_c_array__")? {
        let kind = table.get_type().name()?;
        let text = format!("a {kind} is no Arrow table: it has no __arrow_c_stream__");
        return Err(PyTypeError::new_err(text));
    }
    let made = table.call_method0("__arrow_c_array__")?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = made.extract()?;
    let data = take_array(&schema, &array)?.map_err(wrong)?;
    if !matches!(data.data_type(), DataType::Struct(_)) {
        return Err(PyTypeError::new_err("an Arrow array is no table, unless it is of structs"));
    }
    let (fields, columns, _) = StructArray::from(data).into_parts();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(wrong)?;
    Ok(Box::new(std::iter::once(Ok(batch))))
}

/// See [`batches`].
pub(super) type RecordBatches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

#[expect(unsafe_code, reason = "a capsule holds a pointer")]
fn take_stream(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_ArrowArrayStream> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds a stream of the C interface, which may be moved out; the
    // capsule's own is marked as released.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) })
}

#[expect(unsafe_code, reason = "a capsule holds a pointer")]
fn take_array(
    schema: &Bound<'_, PyCapsule>,
    array: &Bound<'_, PyCapsule>,
) -> PyResult<Result<ArrayData, ArrowError>> {
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast();
    // SAFETY: capsules of these names hold an array and its schema of the C interface; the array
    // is moved out, the schema is only read while its capsule exists.
    Ok(unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) })
}

fn missing_offsets(text: &str) -> client::Result<MissingOffsets> {
    match text {
        "fail" => Ok(MissingOffsets::Fail),
        "skip" => Ok(MissingOffsets::Skip),
        _ => Err(Error::Invalid(format!("lost: {text:?} is neither fail nor skip"))),
    }
}

fn remote_options(
    properties: &mut ClientProperties<'_>,
    missing: MissingOffsets,
) -> client::Result<RemoteOptions> {
    let default = RemoteOptions::default();
    let idle_timeout =
        properties.duration("default.api.timeout.ms")?.unwrap_or(default.idle_timeout);
    let config = super::consumer::config(properties, default.config)?;
    Ok(RemoteOptions { config, missing, idle_timeout })
}
