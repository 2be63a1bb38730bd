//! krust's core: it moves bytes from sockets to logs and back. Each module uses only lower layers.
//!
//! ```text
//! 6 rust/py    the native boundary to Python, a crate of its own
//! 5 net       threads, sockets, order, back-pressure             5 fetcher  copies of leaders
//!                                                    5 inter_broker  questions to peers
//! 4 broker    handlers, image, partitions, delayed requests      4 columns   records as Arrow
//! 3 client    the Kafka client
//! 2 storage   the log on disk      2 protocol  messages     2 transport  frames
//! 1 record    batches and their older forms
//! 0 wire clock ids memory sys work
//! ```

pub mod broker;
pub mod client;
pub mod clock;
pub mod columns;
pub mod fetcher;
pub mod ids;
pub mod inter_broker;
pub mod memory;
pub mod net;
pub mod protocol;
pub mod record;
pub mod storage;
pub mod sys;
pub mod transport;
pub mod wire;
pub mod work;
