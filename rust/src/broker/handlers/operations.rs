//! The operations that replies say a client may do (KIP-430). There is no authorizer, so all are
//! allowed.

/// `topic_authorized_operations` if the request does not ask for them.
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// All operations on a topic.
pub(crate) const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// All operations on the cluster.
pub(crate) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;
