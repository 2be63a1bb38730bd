//! A cluster with one partition, run from a seed: real replica code and real logs on a recording
//! disk; a model of controllers, of ZooKeeper, of clients and of the network.
//!
//! Everything happens on one virtual clock, in an order that only the seed decides. So a seed
//! replays a run exactly, and the traces of two runs of one seed are the same.
//!
//! ```text
//! seeds       many seeds, on all cores; how a failure is reported
//! run         the clock, the queue of events, and the end of a run
//! faults      what goes wrong, and what operators do meanwhile
//! plan        what a seed decides before its run: the cluster, the settings, how often what fails
//! checks      what must hold after every step
//! broker      one broker: process, session, controller
//! replica     its replica: what it does with a message, by the real step functions
//! serving     what a leader checks of a follower's question, in any log
//! machine     its disk, and the real log on it
//! controller  reads ZooKeeper, writes what is decided, tells the brokers
//! decisions   elections, in-sync sets, reassignments, as pure functions
//! zookeeper   registrations and compare-and-set
//! clients     idempotent producers
//! messages    what all of these send each other
//! ```

pub mod broker;
pub mod checks;
pub mod clients;
pub mod controller;
pub mod decisions;
pub mod faults;
pub mod machine;
pub mod messages;
pub mod plan;
pub mod random;
pub mod replica;
pub mod run;
pub mod seeds;
pub mod serving;
pub mod zookeeper;

pub use run::run;
