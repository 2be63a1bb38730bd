//! Every interleaving of a small cluster, breadth first: two or three replicas, a few records and
//! leader epochs, and what may go wrong a bounded number of times. Leaders and followers are the
//! real step functions, over an abstract log; the controller decides by the simulation's functions.
//!
//! Time does not pass, and `replica.lag.time.max.ms` is -1: a follower may be taken for a lagging
//! one whenever it is behind. A process that is dead is one that takes no step; it may start at any
//! time. A message may get lost, and a bounded number may arrive at any time later.
//!
//! ```text
//! search    breadth first, with the hashes of the states that were seen, on all cores
//! steps     which steps a state allows, and what comes of them
//! replica   what a replica does with a message
//! cluster   the state, and what must hold in it
//! variants  protocols that are known to be wrong
//! ```

pub mod cluster;
pub mod replica;
pub mod search;
pub mod steps;
pub mod variants;
