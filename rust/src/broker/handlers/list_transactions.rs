//! ListTransactions (66), v0-2: the transactional ids that this broker coordinates.
//! Behaviour: each filter that is not empty must let an id pass: its state, its producer id, how
//!     long ago its transaction began, its name. State names that do not exist are returned. A
//!     worker makes the list.
//! Errors: COORDINATOR_LOAD_IN_PROGRESS (14) while any partition of `__transaction_state` is
//!     loading; INVALID_REGULAR_EXPRESSION (128).
//! Authorization: ids that the client may not describe are left out.
//! Version notes: v1 adds the duration; an id without a transaction has none, and passes only
//!     without that filter. v2 adds a pattern in RE2's syntax, which must match the whole id.
//! Not done: nothing.

use std::collections::HashSet;
use std::sync::Arc;

use regex::Regex;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::delayed::WorkResult;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::acls::ResourceType::TransactionalId;
use crate::broker::state::pattern;
use crate::broker::transactions::transaction::{self, Transaction};
use crate::protocol::ErrorCode;
use crate::protocol::list_transactions::{
    ListTransactionsRequest, ListTransactionsResponse, TransactionState,
};

/// The filters of a request.
#[derive(Debug)]
struct TransactionFilter {
    states: Vec<String>,
    producer_ids: HashSet<i64>,
    /// Only transactions that began longer ago; negative: all.
    duration_ms: i64,
    pattern: Option<Regex>,
}

/// An id, its producer id and its state.
type ListedId = (Arc<str>, i64, transaction::TransactionState);

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = ListTransactionsRequest::decode(&mut call.reader(), call.version())?;
    let pattern = request.transactional_id_pattern.filter(|pattern| !pattern.is_empty());
    let Ok(pattern) = pattern.map(pattern::compile).transpose() else {
        return refuse(call, ErrorCode::InvalidRegularExpression);
    };
    if call.broker.transactions.shards.is_loading() {
        return refuse(call, ErrorCode::CoordinatorLoadInProgress);
    }
    let filter = TransactionFilter {
        states: request.state_filters.iter().map(|&name| name.to_owned()).collect(),
        producer_ids: request.producer_id_filters.iter().copied().collect(),
        duration_ms: request.duration_filter,
        pattern,
    };
    let (head, access) = (call.request.head, call.access());
    call.hand_over(None, move |broker| {
        let mut listed = filter.list(broker);
        listed.retain(|(id, ..)| access.sees(Describe, TransactionalId, id));
        let response = filter.respond(&listed);
        WorkResult::Answer(head.output(|writer, version| response.encode(writer, version)))
    });
    Ok(Flow::Go)
}

fn refuse(call: &mut Call<'_, '_>, error: ErrorCode) -> HandlerResult {
    let response = ListTransactionsResponse { error_code: error.code(), ..Default::default() };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

impl TransactionFilter {
    fn passes(&self, (id, transaction): (&str, &Transaction), now_ms: i64) -> bool {
        let producer_id = transaction.producer.id;
        let begins_before = now_ms.saturating_sub(self.duration_ms);
        let is_old = (0..begins_before).contains(&transaction.start_ms);
        (self.states.is_empty() || self.states.iter().any(|it| it == transaction.state.name()))
            && (self.producer_ids.is_empty() || self.producer_ids.contains(&producer_id))
            && (self.duration_ms < 0 || is_old)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
    }

    fn list(&self, broker: &Broker) -> Vec<ListedId> {
        let now_ms = broker.clock.wall_ms();
        let mut listed = Vec::new();
        for shard in broker.transactions.shards.ready() {
            let memory = shard.lock();
            let passing = memory.kept.by_id.iter().filter(|(id, it)| self.passes((id, it), now_ms));
            listed.extend(passing.map(|(id, it)| (Arc::clone(id), it.producer.id, it.state)));
        }
        listed
    }

    fn respond<'a>(&'a self, listed: &'a [ListedId]) -> ListTransactionsResponse<'a> {
        let is_known = |name: &str| {
            transaction::TransactionState::ALL.into_iter().any(|state| state.name() == name)
        };
        let unknown = self.states.iter().map(String::as_str).filter(|name| !is_known(name));
        let states = listed.iter().map(|(id, producer_id, state)| TransactionState {
            transactional_id: id,
            producer_id: *producer_id,
            transaction_state: state.name(),
        });
        ListTransactionsResponse {
            unknown_state_filters: unknown.collect(),
            transaction_states: states.collect(),
            ..Default::default()
        }
    }
}
