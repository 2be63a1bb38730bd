//! `_krust.encrypt` and `_krust.decrypt`: AES for passwords in stored settings.
//!
//! Threads: any.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use krust::transport::password_cipher::CipherMode;

/// See `_krust.pyi`.
#[pyfunction]
pub(super) fn encrypt<'py>(
    py: Python<'py>,
    cipher: &str,
    key: &[u8],
    iv: &[u8],
    text: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let made = CipherMode::of(cipher).and_then(|mode| mode.encrypt(key, iv, text));
    let made = made.ok_or_else(|| PyValueError::new_err("no such cipher, key or IV"))?;
    Ok(PyBytes::new(py, &made))
}

/// See `_krust.pyi`.
#[pyfunction]
pub(super) fn decrypt<'py>(
    py: Python<'py>,
    cipher: &str,
    key: &[u8],
    iv: &[u8],
    encrypted: &[u8],
) -> Option<Bound<'py, PyBytes>> {
    let text = CipherMode::of(cipher).and_then(|mode| mode.decrypt(key, iv, encrypted));
    text.map(|text| PyBytes::new(py, &text))
}
