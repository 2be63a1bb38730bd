//! Converts messages to and from plain Python objects: dict, list, str, int, float, bool, bytes,
//! None.
//!
//! Keys are Kafka's field names in snake_case. A UUID is its 22 characters of base64, in both
//! directions. A tuple is taken as a list.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use krust::protocol::value::Value;

/// The deepest nesting; Kafka's messages have less.
const MAX_DEPTH: usize = 32;

/// Converts a value to Python objects.
pub(super) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(is) => PyBool::new(py, *is).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => PyFloat::new(py, *number).into_any(),
        Value::Str(text) => PyString::new(py, text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::Uuid(id) => PyString::new(py, &id.to_string()).into_any(),
        Value::List(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(to_python(py, item)?)?;
            }
            list.into_any()
        }
        Value::Map(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(pyo3::types::PyString::intern(py, name), to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// Converts Python objects to a value; TypeError for any other object.
pub(super) fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    read(object, 0)
}

fn read(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > MAX_DEPTH {
        return Err(PyTypeError::new_err("a message is not that deep"));
    }
    if object.is_none() {
        Ok(Value::Null)
    } else if let Ok(is) = object.cast::<PyBool>() {
        Ok(Value::Bool(is.is_true()))
    } else if object.is_instance_of::<PyInt>() {
        Ok(Value::Int(object.extract()?))
    } else if let Ok(number) = object.cast::<PyFloat>() {
        Ok(Value::Float(number.value()))
    } else if let Ok(text) = object.cast::<PyString>() {
        Ok(Value::Str(text.to_cow()?.into_owned()))
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        Ok(Value::Bytes(bytes.as_bytes().to_vec()))
    } else if let Ok(dict) = object.cast::<PyDict>() {
        let field = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok((Cow::Owned(name.extract::<String>()?), read(&value, depth + 1)?))
        };
        Ok(Value::Map(dict.iter().map(field).collect::<PyResult<_>>()?))
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object.try_iter()?.map(|item| read(&item?, depth + 1));
        Ok(Value::List(items.collect::<PyResult<_>>()?))
    } else {
        let kind = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("a message cannot hold a {kind}")))
    }
}
