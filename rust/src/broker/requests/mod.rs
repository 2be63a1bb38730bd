//! A request on its way: its call, its reply, what it waits for, what it asks of the policy; and
//! THE table of APIs.

pub mod apis;
pub mod broker;
pub(crate) mod call;
pub mod connection;
pub(crate) mod decisions;
pub mod delayed;
pub(crate) mod head;
pub(crate) mod meter;
pub mod reply;
pub mod service;
pub(crate) mod work;
pub(crate) mod workers;
