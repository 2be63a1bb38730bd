//! The handlers, one file for each API. A file's header says what it serves and what it omits.

pub(crate) mod add_offsets_to_txn;
pub(crate) mod add_partitions_to_txn;
pub(crate) mod api_versions;
pub(crate) mod consumer_group_heartbeat;
pub(crate) mod delete_records;
pub(crate) mod describe_cluster;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod describe_transactions;
pub(crate) mod dispatch;
pub(crate) mod end_reply;
pub(crate) mod end_txn;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod first_only;
pub(crate) mod group;
pub(crate) mod group_reply;
pub(crate) mod heartbeat;
pub(crate) mod init_producer_id;
pub(crate) mod list_offsets;
pub(crate) mod list_transactions;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod permission;
pub(crate) mod policy;
pub(crate) mod produce;
pub(crate) mod producer_reply;
pub(crate) mod sasl_authenticate;
pub(crate) mod sasl_handshake;
pub(crate) mod txn_offset_commit;
pub(crate) mod verify_or_add;
pub(crate) mod write_txn_markers;

use crate::broker::requests::call::{Call, HandlerResult};
use crate::protocol;

/// Handles a request on its network thread.
pub(crate) type Handler = fn(&mut Call<'_, '_>) -> HandlerResult;

/// The handler of an API that runs on network threads, by its key.
#[inline]
pub(crate) fn handler(key: i16) -> Option<Handler> {
    Some(match key {
        protocol::fetch::KEY => fetch::handle,
        protocol::list_offsets::KEY => list_offsets::handle,
        protocol::metadata::KEY => metadata::handle,
        protocol::offset_commit::KEY => offset_commit::handle,
        protocol::offset_fetch::KEY => offset_fetch::handle,
        protocol::find_coordinator::KEY => find_coordinator::handle,
        protocol::heartbeat::KEY => heartbeat::handle,
        protocol::sasl_handshake::KEY => sasl_handshake::handle,
        protocol::sasl_authenticate::KEY => sasl_authenticate::handle,
        protocol::api_versions::KEY => api_versions::handle,
        protocol::delete_records::KEY => delete_records::handle,
        protocol::init_producer_id::KEY => init_producer_id::handle,
        protocol::add_partitions_to_txn::KEY => add_partitions_to_txn::handle,
        protocol::add_offsets_to_txn::KEY => add_offsets_to_txn::handle,
        protocol::end_txn::KEY => end_txn::handle,
        protocol::describe_transactions::KEY => describe_transactions::handle,
        protocol::list_transactions::KEY => list_transactions::handle,
        protocol::offset_for_leader_epoch::KEY => offset_for_leader_epoch::handle,
        protocol::write_txn_markers::KEY => write_txn_markers::handle,
        protocol::txn_offset_commit::KEY => txn_offset_commit::handle,
        protocol::describe_log_dirs::KEY => describe_log_dirs::handle,
        protocol::offset_delete::KEY => offset_delete::handle,
        protocol::describe_cluster::KEY => describe_cluster::handle,
        protocol::describe_producers::KEY => describe_producers::handle,
        protocol::consumer_group_heartbeat::KEY => consumer_group_heartbeat::handle,
        protocol::describe_topic_partitions::KEY => describe_topic_partitions::handle,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::requests::apis::{HandlerKind, served};

    #[test]
    fn an_api_has_a_handler_exactly_where_it_runs_on_network_threads() {
        for api in served() {
            assert_eq!(handler(api.key).is_some(), api.run == HandlerKind::Network, "{}", api.name);
        }
    }
}
