//! Requests: the call, its reply, delayed requests, decisions asked of the policy, and the API
//! table.

pub(crate) mod access;
pub(crate) mod alter_partition;
pub mod apis;
pub mod broker;
pub(crate) mod call;
pub(crate) mod class_acls;
pub mod connection;
pub(crate) mod decisions;
pub mod delayed;
pub(crate) mod head;
pub(crate) mod login;
pub(crate) mod meter;
pub mod reply;
pub(crate) mod select_replicas;
pub mod service;
pub(crate) mod work;
pub(crate) mod workers;
