//! What the broker does without being asked, when its owner says it is time.
//! Threads: any but a reactor: files are deleted and written.

use super::Broker;

impl Broker {
    /// Lets each partition drop what its retention settings no longer keep. The number of segments
    /// that went. A partition whose disk fails is logged and passed over.
    pub fn retain(&self) -> usize {
        let now_ms = self.clock.wall_ms();
        let dropped = self.partitions().into_iter().map(|partition| {
            partition.log.retain(now_ms).unwrap_or_else(|error| {
                tracing::error!(partition = %partition.name, %error, "retention failed");
                0
            })
        });
        dropped.sum()
    }
}
