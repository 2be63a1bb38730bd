//! The log on disk. Each file tests one fact.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod a_recovery_logs_what_it_cuts;
mod adopts_kafka_directories;
mod compaction_keeps_the_last_of_each_key;
mod compaction_survives_crashes;
mod corruption;
mod crash_images_by_the_thousand;
mod crash_images_recover_to_a_whole_log;
mod cuts_wrong_offset_with_right_crc;
mod cuts_zero_tail;
mod damage_below_the_recovery_point_is_reported;
mod damage_is_named_and_never_served;
mod damaged_indexes_find_nothing_wrong;
mod deleted_logs_stay_deleted;
mod disk_full_refuses_and_resumes;
mod epochs_without_a_batch;
mod failed_fsync_takes_directory_offline;
mod files_are_synced_before_they_are_closed;
mod files_without_an_epoch;
mod followers_copy_byte_for_byte;
mod indexes_are_read_through_a_bounded_cache;
mod indexes_of_active_segments_stay_in_files;
mod kafka_reads_what_krust_wrote;
mod log_behaves_like_a_vector;
mod logs_move_between_directories;
mod many_logs_are_closed_by_one_sync;
mod network_threads_leave_long_appends;
mod one_sync_serves_all_that_wait;
mod panics_are_noticed;
mod producers_are_idempotent;
mod reads_find_every_offset;
mod rebuilds_deleted_indexes;
mod recovers_after_torn_tail;
mod retention_deletes_whole_segments;
mod support;
mod sync_moves_the_flushed_offset;
mod the_newest_batches_are_read_from_memory;
mod transactions_begin_verified_and_end_once;
mod truncation_keeps_what_readers_hold;
mod unreadable_checkpoints_are_named;
