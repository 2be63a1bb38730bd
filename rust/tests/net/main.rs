//! The network layer over real sockets, with a test double instead of the broker.

#![cfg(test)]

mod double;

mod a_paused_server_hangs;
mod accept_pauses_without_descriptors;
mod any_bytes_do_not_stop_the_reactor;
mod certificates_come_before_requests;
mod connections_end_when_they_should;
mod frames_may_be_split_anywhere;
mod idle_connections_hold_little;
mod limits_on_connections_hold;
mod logins_are_short;
mod logins_hold_little_together;
mod long_replies_let_others_go_first;
mod much_work_is_done_in_turns;
mod muted_connections_wait;
mod oversized_frame_is_refused_before_memory;
mod replies_keep_request_order;
mod slow_reader_is_paused_and_closed;
mod starts_and_stops_leave_nothing;
mod tls_connections;
mod truncated_records_are_never_sent_as_others;
