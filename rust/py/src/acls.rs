//! Converts ACLs from Python's values, and passes on for which clients a user's class is asked.
//!
//! Threads: attached. Waiting for questions is detached.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;

use super::errors::config_error;
use krust::broker::acls::{AclBinding, AclTable, Operation, ResourceType};
use krust::broker::{Broker, ClassClient};

const ALLOW: i8 = 3;
const PREFIXED: i8 = 4;

/// Type of the resource, type of the pattern, name, principal, host, operation, permission: with
/// Kafka's numbers.
type AclRow = (i8, i8, String, String, String, i8, i8);

/// The number of a question, and the client: user, address, listener.
type QuestionRow = (u64, String, String, String);

/// The questions for a user's class that gives ACLs.
#[pyclass(frozen, name = "AclQuestions", module = "krust._krust")]
pub(super) struct PyAclQuestions(pub(super) Arc<Broker>);

#[pymethods]
impl PyAclQuestions {
    fn take(&self, py: Python<'_>, timeout_ms: u64) -> Option<Vec<QuestionRow>> {
        let questions = py.detach(|| self.0.acl_questions(Duration::from_millis(timeout_ms)))?;
        let row = |(number, client): (u64, ClassClient)| {
            let text = |text: Arc<str>| text.to_string();
            (number, text(client.user), text(client.host), text(client.listener))
        };
        Some(questions.into_iter().map(row).collect())
    }

    fn answer(&self, py: Python<'_>, number: u64, rows: Vec<AclRow>) -> PyResult<()> {
        let bindings =
            rows.into_iter().map(|row| binding(py, row)).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.0.answer_acls(number, Ok(AclTable::new(&bindings))));
        Ok(())
    }

    fn refuse(&self, py: Python<'_>, number: u64, retry_ms: i64) {
        py.detach(|| self.0.answer_acls(number, Err(retry_ms)));
    }

    fn close(&self) {
        self.0.end_acl_questions();
    }
}

/// The ACLs of a delta.
pub(super) fn table(py: Python<'_>, rows: Vec<AclRow>) -> PyResult<Arc<AclTable>> {
    let bindings = rows.into_iter().map(|row| binding(py, row)).collect::<PyResult<Vec<_>>>()?;
    Ok(Arc::new(AclTable::new(&bindings)))
}

/// The names of `super.users`, from principals.
pub(super) fn users(py: Python<'_>, principals: Vec<String>) -> PyResult<HashSet<String>> {
    let user = |principal: String| match principal.strip_prefix("User:") {
        Some(name) => Ok(name.to_owned()),
        None => Err(config_error(py, &format!("super.users: {principal} is no User:NAME"))),
    };
    principals.into_iter().map(user).collect()
}

fn binding(py: Python<'_>, row: AclRow) -> PyResult<AclBinding> {
    let (resource_type, pattern_type, name, principal, host, operation, permission) = row;
    let unknown = || config_error(py, &format!("no ACL: type {resource_type}, {operation}"));
    Ok(AclBinding {
        resource_type: ResourceType::of(resource_type).ok_or_else(unknown)?,
        is_prefixed: pattern_type == PREFIXED,
        name,
        principal,
        host,
        operation: Operation::of(operation).ok_or_else(unknown)?,
        is_allow: permission == ALLOW,
    })
}
