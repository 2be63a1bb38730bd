//! The operations that replies say a client may do (KIP-430). There is no authorizer, so all are
//! allowed.

/// `topic_authorized_operations` where nobody asked.
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// Every operation on a topic: without an authorizer everybody may do everything.
pub(crate) const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// Every operation on the cluster.
pub(crate) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;
