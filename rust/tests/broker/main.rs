//! The broker, request by request, without a socket.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod a_broken_disk_leads_nothing;
mod a_class_gives_clients_their_acls;
mod a_leader_that_is_cut_off_refuses_acks_all;
mod a_new_leader_learns_the_watermark_later;
mod aborted_records_are_named;
mod access_is_checked_before_any_effect;
mod acks_minus_one_waits_for_the_disk;
mod api_versions_lists_the_table;
mod bad_batches_are_refused;
mod batches_behind_a_refused_one_are_refused;
mod brokers_ask_on_their_own_listener;
mod cold_records_are_read_by_a_worker;
mod consumer_groups_live_in_the_log;
mod consumers_read_followers;
mod consumers_read_in_their_rack;
mod coordinators_are_found;
mod damaged_commits_are_left_out;
mod decisions_come_from_the_policy;
mod deletions_wait_for_the_followers;
mod double;
mod every_bad_record_is_named;
mod fetch_obeys_its_limits;
mod fetch_sessions_name_only_what_changed;
mod followers_fetch_between_brokers;
mod groups;
mod groups_are_refused_before_the_policy;
mod heartbeats_are_checked_against_the_snapshot;
mod in_sync_sets_shrink_and_grow;
mod large_requests_wait_for_memory;
mod leaders_move;
mod logins_come_first;
mod logs_bound_what_is_handed_out;
mod logs_open_side_by_side;
mod long_poll_wakes_on_produce;
mod long_work_leaves_the_network_thread;
mod malformed_requests_harm_nobody;
mod markers_end_transactions;
mod members;
mod members_with_their_assignment_are_answered_from_the_snapshot;
mod offsets_are_committed_and_fetched;
mod offsets_are_listed;
mod offsets_expire;
mod offsets_of_transactions_are_pending;
mod offsets_outlive_a_restart;
mod policy_requests_are_paid_for;
mod produced_is_fetched_at_every_version;
mod quotas_are_kept;
mod racks;
mod records;
mod repeated_batches_keep_their_offsets;
mod repeated_names_are_answered_once;
mod replicas;
mod replies_of_groups_wait_for_their_records;
mod silent_members_expire;
mod slow_requests_are_named;
mod the_watermark_waits_for_the_slowest_follower;
mod too_few_in_sync_replicas_refuse_acks_all;
mod transactional_batches_are_verified;
mod transactional_ids_are_described_and_listed;
mod transactions;
mod transactions_outlive_a_restart;
mod transactions_run_on_one_broker;
