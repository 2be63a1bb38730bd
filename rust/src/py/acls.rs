//! Converts ACLs from Python's values.
//!
//! Threads: attached.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::config_error;
use crate::broker::acls::{AclBinding, AclTable, Operation, ResourceType};

const ALLOW: i8 = 3;
const PREFIXED: i8 = 4;

/// Type of the resource, type of the pattern, name, principal, host, operation, permission: with
/// Kafka's numbers.
type AclRow = (i8, i8, String, String, String, i8, i8);

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
