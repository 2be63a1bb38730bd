//! `_krust.PrincipalRules`: the rules by which certificates' subjects become users' names.
//!
//! Threads: any.

use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::config_error;
use krust::broker::{LetterCase, PrincipalRules};

/// See `_krust.pyi`.
#[pyclass(frozen, name = "PrincipalRules", module = "krust._krust")]
pub(super) struct PyPrincipalRules(Arc<PrincipalRules>);

impl PyPrincipalRules {
    /// The rules, which do not change.
    pub(super) fn shared(&self) -> Arc<PrincipalRules> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl PyPrincipalRules {
    #[new]
    fn new(py: Python<'_>, rules: Vec<Option<(String, String, String)>>) -> PyResult<Self> {
        let mut made = PrincipalRules::none();
        for rule in rules {
            let Some((pattern, replacement, case)) = rule else {
                made.push_default();
                continue;
            };
            let letter_case = match case.as_str() {
                "L" => LetterCase::Lower,
                "U" => LetterCase::Upper,
                _ => LetterCase::Kept,
            };
            made.push(&pattern, &replacement, letter_case).map_err(|what| {
                config_error(py, &format!("RULE:{pattern}/{replacement}/{case}: {what}"))
            })?;
        }
        Ok(Self(Arc::new(made)))
    }

    fn name(&self, subject: &str) -> Option<String> {
        self.0.name(subject)
    }
}
