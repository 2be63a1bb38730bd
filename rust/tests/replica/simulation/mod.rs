//! A cluster with one partition, run from a seed: real replica code and real logs on a recording
//! disk; a model of the controller, of ZooKeeper and of the network.
//!
//! Everything happens on one virtual clock, in an order that only the seed decides. So a seed
//! replays a run exactly, and the trace of two runs of one seed is the same.
//!
//! ```text
//! run         the clock, the queue of events, faults, and the end of a run
//! broker      one broker: its log on its disk, its role, what it does with a message
//! controller  registrations, elections, in-sync sets: compare-and-set on one state
//! messages    what brokers, controller and clients send each other
//! checks      what must hold after every step
//! ```

pub mod broker;
pub mod checks;
pub mod controller;
pub mod messages;
pub mod random;
pub mod run;

pub use run::{Report, run};
