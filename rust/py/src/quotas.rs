//! Converts quotas from Python's `(entity, values)`: entity is a dict of `user`, `client_id` and
//! `ip` to a name or None (the default), values is a dict of the quotas that are set.
//!
//! An unknown key is a ValueError, a value of a wrong type a TypeError. Both name the key.
//! Threads: attached.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use krust::broker::quotas::{EntityName, QuotaEntity, QuotaLimits};

/// Reads one row.
pub(super) fn row(item: &Bound<'_, PyAny>) -> PyResult<(QuotaEntity, QuotaLimits)> {
    let (entity, values): (Bound<'_, PyDict>, Bound<'_, PyDict>) =
        item.extract().map_err(|error| PyTypeError::new_err(format!("quotas: {error}")))?;
    Ok((named(&entity)?, limits(&values)?))
}

fn named(dict: &Bound<'_, PyDict>) -> PyResult<QuotaEntity> {
    let mut entity = QuotaEntity::default();
    for (key, name) in dict {
        let key: String = key.extract()?;
        let name: Option<String> = name.extract().map_err(|error| wrong(&key, &error))?;
        let name = name.map_or(EntityName::Default, |name| EntityName::Is(Arc::from(name)));
        *match key.as_str() {
            "user" => &mut entity.user,
            "client_id" => &mut entity.client_id,
            "ip" => &mut entity.ip,
            _ => return Err(unknown(&key)),
        } = Some(name);
    }
    Ok(entity)
}

fn limits(dict: &Bound<'_, PyDict>) -> PyResult<QuotaLimits> {
    let mut limits = QuotaLimits::default();
    for (key, value) in dict {
        let key: String = key.extract()?;
        let value: f64 = value.extract().map_err(|error| wrong(&key, &error))?;
        *match key.as_str() {
            "producer_byte_rate" => &mut limits.producer_byte_rate,
            "consumer_byte_rate" => &mut limits.consumer_byte_rate,
            "request_percentage" => &mut limits.request_percentage,
            "connection_creation_rate" => &mut limits.connection_creation_rate,
            _ => return Err(unknown(&key)),
        } = Some(value);
    }
    Ok(limits)
}

fn wrong(key: &str, error: &PyErr) -> PyErr {
    PyTypeError::new_err(format!("quotas: {key}: {error}"))
}

fn unknown(key: &str) -> PyErr {
    PyValueError::new_err(format!("quotas: there is no {key:?}"))
}
