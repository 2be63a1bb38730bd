//! What of a request that the policy decides is allowed. The policy sees only what is allowed, and
//! of its answer the client sees only what it may know.
//!
//! Behaviour: an operation on the cluster that is not allowed refuses the whole request with
//!     CLUSTER_AUTHORIZATION_FAILED (31). Of a list, items that are not allowed are answered here
//!     with TOPIC_AUTHORIZATION_FAILED (29), GROUP_AUTHORIZATION_FAILED (30) or 31, whether or not
//!     they exist, and the others are passed on. A delegation token for another owner is refused
//!     with DELEGATION_TOKEN_AUTHORIZATION_FAILED (65). Which operations: the API table.
//! Threads: the network thread of the request; an answer is filtered on the thread that gives it.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::broker::policy::ClientProof;
use crate::broker::requests::access::Access;
use crate::broker::requests::apis::Needs;
use crate::broker::requests::call::Call;
use crate::broker::requests::decisions::AnswerFilter;
use crate::broker::state::acls::Operation::{
    Alter, AlterConfigs, CreateTokens, Delete, Describe, DescribeConfigs, DescribeTokens, Read,
};
use crate::broker::state::acls::{Operation, ResourceType};
use crate::broker::state::image::ClusterImage;
use crate::protocol::value::Value;
use crate::protocol::{
    ErrorCode, alter_client_quotas, alter_configs, alter_replica_log_dirs,
    alter_user_scram_credentials, consumer_group_describe, consumer_group_heartbeat, create_acls,
    create_delegation_token, create_partitions, create_topics, delete_acls, delete_groups,
    delete_topics, describe_configs, describe_delegation_token, describe_groups, elect_leaders,
    expire_delegation_token, incremental_alter_configs, join_group, leave_group, list_groups,
    offset_commit, offset_fetch, renew_delegation_token, sync_group,
};

use ResourceType::{Cluster, DelegationToken, Group, Topic, User};

const TOPIC: i64 = 2;
const GROUP: i64 = 32;
/// The type of every client's principal.
const USER_TYPE: &str = "User";
/// The first version in which a refused JoinGroup names no protocol.
const NO_PROTOCOL_FROM: i16 = 7;

/// What of a request the policy decides.
pub(crate) enum Admission {
    /// This. `settled`: entries for the answer's list that were decided here.
    Ask { request: Value, settled: Vec<Value> },
    /// Nothing: the request is answered with this.
    Answer(Value),
}

/// A field of a message.
type Field = (Cow<'static, str>, Value);

/// Checks what a request asks for.
pub(crate) fn admit(call: &Call<'_, '_>, request: Value) -> Admission {
    let access = call.access();
    if access.client.is_none() {
        return Admission::Ask { request, settled: Vec::new() };
    }
    let key = access.api.key;
    if let Needs::Whole(operation) = access.api.needs {
        return match access.check_cluster(operation) {
            true => Admission::Ask { request, settled: Vec::new() },
            false => Admission::Answer(whole_refusal(key, &request)),
        };
    }
    let list = |request, asked: &[&str], answered, refuse: &dyn Fn(&Value) -> Option<Value>| {
        of_list(request, (asked, answered), Vec::new(), refuse)
    };
    let group = |operation| {
        let access = &access;
        move |item: &Value| group_entry(access, operation, item)
    };
    let config = |operation| {
        let access = &access;
        move |item: &Value| config_entry(access, operation, item)
    };
    match key {
        join_group::KEY | leave_group::KEY | sync_group::KEY => {
            of_member(&access, call.version(), request)
        }
        describe_groups::KEY => list(request, &["groups"], "groups", &group(Describe)),
        consumer_group_describe::KEY => list(request, &["group_ids"], "groups", &group(Describe)),
        delete_groups::KEY => list(request, &["groups_names"], "results", &group(Delete)),
        create_topics::KEY => {
            list(request, &["topics"], "topics", &|item| creation_entry(&access, item))
        }
        create_partitions::KEY => {
            list(request, &["topics"], "results", &|item| growth_entry(&access, item))
        }
        delete_topics::KEY => {
            let image = call.image();
            let refuse = |item: &Value| deletion_entry(&access, &image, item);
            list(request, &["topic_names", "topics"], "responses", &refuse)
        }
        describe_configs::KEY => list(request, &["resources"], "results", &config(DescribeConfigs)),
        alter_configs::KEY | incremental_alter_configs::KEY => {
            list(request, &["resources"], "responses", &config(AlterConfigs))
        }
        offset_commit::KEY => of_old_offsets(&access, request, Read),
        offset_fetch::KEY => of_old_offsets(&access, request, Describe),
        create_delegation_token::KEY => of_new_token(call, &access, request),
        // The answer is filtered; the handler has checked; the policy asks for the HMAC.
        list_groups::KEY
        | describe_delegation_token::KEY
        | consumer_group_heartbeat::KEY
        | renew_delegation_token::KEY
        | expire_delegation_token::KEY => Admission::Ask { request, settled: Vec::new() },
        _ => Admission::Answer(whole_refusal(key, &request)),
    }
}

/// What hides parts of the policy's answer from the client.
pub(crate) fn answer_filter(call: &Call<'_, '_>) -> Option<AnswerFilter> {
    let access = call.access();
    if access.is_unlimited() {
        return None;
    }
    let hide: fn(&Access, &mut Value) = match access.api.key {
        list_groups::KEY => hide_groups,
        describe_groups::KEY | consumer_group_describe::KEY => hide_of_groups,
        create_topics::KEY => hide_configs,
        describe_delegation_token::KEY => hide_tokens,
        _ => return None,
    };
    Some(AnswerFilter { access, hide })
}

/// A member's request about its group.
fn of_member(access: &Access, version: i16, request: Value) -> Admission {
    if access.check(Read, Group, request.text("group_id")) {
        return Admission::Ask { request, settled: Vec::new() };
    }
    let refused = (access.api.key, ErrorCode::GroupAuthorizationFailed);
    Admission::Answer(member_refusal(refused, version, &request))
}

/// The answer that refuses a member's request.
pub(crate) fn member_refusal(
    (key, error): (i16, ErrorCode),
    version: i16,
    request: &Value,
) -> Value {
    let mut fields = vec![code(error)];
    if key == join_group::KEY {
        fields.push(("member_id".into(), request.text("member_id").into()));
        if version < NO_PROTOCOL_FROM {
            fields.push(("protocol_name".into(), "".into()));
        }
    }
    Value::Map(fields)
}

/// A request for lists of independent items. `refuse` returns the answer to an item that is not
/// passed on; `settled` has those to items that were decided before.
pub(crate) fn of_list(
    mut request: Value,
    (asked, answered): (&[&str], &'static str),
    mut settled: Vec<Value>,
    refuse: impl Fn(&Value) -> Option<Value>,
) -> Admission {
    let mut is_left = false;
    for name in asked {
        let Some(items) = request.items_mut(name) else { continue };
        items.retain(|item| match refuse(item) {
            None => true,
            Some(entry) => {
                settled.push(entry);
                false
            }
        });
        is_left |= !items.is_empty();
    }
    match is_left || settled.is_empty() {
        true => Admission::Ask { request, settled },
        false => Admission::Answer(Value::Map(vec![(answered.into(), Value::List(settled))])),
    }
}

fn group_entry(access: &Access, operation: Operation, item: &Value) -> Option<Value> {
    let Value::Str(group_id) = item else { return None };
    let is_allowed = access.check(operation, Group, group_id);
    (!is_allowed).then(|| group_refusal(group_id, ErrorCode::GroupAuthorizationFailed))
}

/// The answer to one of many groups.
pub(crate) fn group_refusal(group_id: &str, error: ErrorCode) -> Value {
    Value::Map(vec![("group_id".into(), group_id.into()), code(error)])
}

/// A topic to create.
fn creation_entry(access: &Access, item: &Value) -> Option<Value> {
    let name = item.text("name");
    let mut fields = vec![("name".into(), name.into())];
    if !access.sees(DescribeConfigs, Topic, name) {
        fields.push(no_configs());
    }
    refused(access.may_create(name), Topic, fields)
}

/// A topic that is to have more partitions.
fn growth_entry(access: &Access, item: &Value) -> Option<Value> {
    let name = item.text("name");
    refused(access.check(Alter, Topic, name), Topic, vec![("name".into(), name.into())])
}

/// A topic to delete, by name or id. An id whose topic the client may not describe stays without a
/// name.
fn deletion_entry(access: &Access, image: &ClusterImage, item: &Value) -> Option<Value> {
    let id = match item.field("topic_id") {
        Some(Value::Uuid(id)) if item.field("name") == Some(&Value::Null) => Some(*id),
        _ => None,
    };
    let name = match (item, id) {
        (_, Some(id)) => image.topic_by_id(id)?.name.to_string(),
        (Value::Str(name), _) => name.clone(),
        _ => item.text("name").to_owned(),
    };
    let is_known = id.is_none() || access.check(Describe, Topic, &name);
    if is_known && access.check(Delete, Topic, &name) {
        return None;
    }
    let name = if is_known { Value::Str(name) } else { Value::Null };
    let id = Value::Uuid(id.unwrap_or_default());
    refused(false, Topic, vec![("name".into(), name), ("topic_id".into(), id)])
}

fn config_entry(access: &Access, operation: Operation, item: &Value) -> Option<Value> {
    let (kind, name) = (item.field("resource_type")?, item.text("resource_name"));
    let (of, is_allowed) = match kind {
        Value::Int(TOPIC) => (Topic, access.check(operation, Topic, name)),
        Value::Int(GROUP) => (Group, access.check(operation, Group, name)),
        _ => (Cluster, access.check_cluster(operation)),
    };
    let fields =
        vec![("resource_type".into(), kind.clone()), ("resource_name".into(), name.into())];
    refused(is_allowed, of, fields)
}

/// OffsetCommit 0 and OffsetFetch 0, whose offsets are in ZooKeeper.
fn of_old_offsets(access: &Access, request: Value, of_group: Operation) -> Admission {
    let group = access.check(of_group, Group, request.text("group_id"));
    of_list(request, (&["topics"], "topics"), Vec::new(), |topic| {
        let name = topic.text("name");
        let error = match group {
            false => ErrorCode::GroupAuthorizationFailed,
            true if access.check(of_group, Topic, name) => return None,
            true => ErrorCode::TopicAuthorizationFailed,
        };
        let indexes = topic.items("partition_indexes").to_vec();
        let committed = topic.items("partitions").iter();
        let committed = committed.filter_map(|each| each.field("partition_index").cloned());
        let partition = |index| {
            let mut fields = vec![("partition_index".into(), index), code(error)];
            if access.api.key == offset_fetch::KEY {
                fields.push(("committed_offset".into(), Value::Int(-1)));
                fields.push(("metadata".into(), "".into()));
            }
            Value::Map(fields)
        };
        let partitions = indexes.into_iter().chain(committed).map(partition).collect();
        let fields =
            vec![("name".into(), name.into()), ("partitions".into(), Value::List(partitions))];
        Some(Value::Map(fields))
    })
}

/// A delegation token. Its owner may be another user than the client (KIP-373). The policy refuses
/// clients that may have none.
fn of_new_token(call: &Call<'_, '_>, access: &Access, request: Value) -> Admission {
    let user = &*call.connection.user;
    let kind = request.text("owner_principal_type");
    let owner = request.text("owner_principal_name");
    let is_own = owner.is_empty() || (kind, owner) == (USER_TYPE, user);
    let may_ask = matches!(call.proof(), ClientProof::Login | ClientProof::Certificate);
    if is_own || !may_ask || access.check(CreateTokens, User, &format!("{kind}:{owner}")) {
        return Admission::Ask { request, settled: Vec::new() };
    }
    let text = |name: &'static str, text: &str| (name.into(), Value::from(text));
    let mut fields = vec![
        code(ErrorCode::DelegationTokenAuthorizationFailed),
        text("principal_type", kind),
        text("principal_name", owner),
        text("token_requester_principal_type", USER_TYPE),
        text("token_requester_principal_name", user),
        ("throttle_time_ms".into(), Value::Int(0)),
    ];
    let times = ["issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"];
    fields.extend(times.map(|name| (name.into(), Value::Int(-1))));
    Admission::Answer(Value::Map(fields))
}

/// The answer to an item that is not allowed; `None`: it is.
fn refused(is_allowed: bool, of: ResourceType, mut item: Vec<Field>) -> Option<Value> {
    let (error, message) = match of {
        Topic => (ErrorCode::TopicAuthorizationFailed, "Topic authorization failed."),
        Group => (ErrorCode::GroupAuthorizationFailed, "Group authorization failed."),
        _ => (ErrorCode::ClusterAuthorizationFailed, "Cluster authorization failed."),
    };
    item.extend([code(error), ("error_message".into(), message.into())]);
    (!is_allowed).then_some(Value::Map(item))
}

/// The answer that refuses a whole request. Where a response has no error of its own, each item has
/// it.
fn whole_refusal(key: i16, request: &Value) -> Value {
    let error = || code(ErrorCode::ClusterAuthorizationFailed);
    let each = |list, copied: &dyn Fn(&Value) -> Vec<Field>| {
        let entries = request.items(list).iter().map(|item| {
            let mut fields = copied(item);
            fields.push(error());
            Value::Map(fields)
        });
        Value::List(entries.collect())
    };
    let fields = match key {
        create_acls::KEY => vec![("results".into(), each("creations", &|_| Vec::new()))],
        delete_acls::KEY => vec![("filter_results".into(), each("filters", &|_| Vec::new()))],
        alter_client_quotas::KEY => {
            let entity =
                |item: &Value| vec![("entity".into(), Value::List(item.items("entity").to_vec()))];
            vec![("entries".into(), each("entries", &entity))]
        }
        alter_user_scram_credentials::KEY => {
            let (mut users, mut seen) = (Vec::new(), HashSet::new());
            let deleted = request.items("deletions").iter();
            for change in deleted.chain(request.items("upsertions")) {
                let user = change.text("name");
                if seen.insert(user) {
                    users.push(Value::Map(vec![("user".into(), user.into()), error()]));
                }
            }
            vec![("results".into(), Value::List(users))]
        }
        alter_replica_log_dirs::KEY => {
            let topics = request.items("dirs").iter().flat_map(|dir| dir.items("topics"));
            let results = topics.map(|topic| {
                let partitions = by_partition(topic, ("partition_index", error()));
                topic_result(("topic_name", topic.text("name")), ("partitions", partitions))
            });
            vec![("results".into(), Value::List(results.collect()))]
        }
        elect_leaders::KEY => {
            let results = request.items("topic_partitions").iter().map(|topic| {
                let partitions = by_partition(topic, ("partition_id", error()));
                topic_result(("topic", topic.text("topic")), ("partition_result", partitions))
            });
            vec![error(), ("replica_election_results".into(), Value::List(results.collect()))]
        }
        _ => vec![error()],
    };
    Value::Map(fields)
}

/// An error for each partition that a topic of a request lists.
fn by_partition(topic: &Value, (index, error): (&'static str, Field)) -> Value {
    let indexes = topic.items("partitions").iter().cloned();
    let partition = |each| Value::Map(vec![(index.into(), each), error.clone()]);
    Value::List(indexes.map(partition).collect())
}

fn topic_result(
    (key, name): (&'static str, &str),
    (list, partitions): (&'static str, Value),
) -> Value {
    Value::Map(vec![(key.into(), name.into()), (list.into(), partitions)])
}

/// Hides the groups of ListGroups that the client may not describe.
fn hide_groups(access: &Access, answer: &mut Value) {
    if !access.sees_cluster(Describe)
        && let Some(groups) = answer.items_mut("groups")
    {
        groups.retain(|group| access.sees(Describe, Group, group.text("group_id")));
    }
}

/// Tells the operations on groups that the client may do, and of no topic that it may not describe.
fn hide_of_groups(access: &Access, answer: &mut Value) {
    for group in answer.items_mut("groups").into_iter().flatten() {
        let group_id = group.text("group_id").to_owned();
        if !group.items("members").iter().all(|member| sees_topics_of(access, member)) {
            *group = Value::Map(vec![
                ("group_id".into(), Value::Str(group_id)),
                code(ErrorCode::TopicAuthorizationFailed),
                ("error_message".into(), "a member reads topics that you may not describe".into()),
            ]);
        } else if let Some(Value::Int(operations)) = group.field_mut("authorized_operations")
            && *operations >= 0
        {
            *operations &= i64::from(access.group_operations(&group_id));
        }
    }
}

/// Whether the client may describe all topics of a member of a consumer group (KIP-848).
fn sees_topics_of(access: &Access, member: &Value) -> bool {
    let assigned = ["assignment", "target_assignment"].into_iter().flat_map(|assignment| {
        let found = member.field(assignment);
        found.map_or(&[][..], |found| found.items("topic_partitions"))
    });
    let mut assigned = assigned.map(|topic| topic.text("topic_name"));
    let mut subscribed = member.items("subscribed_topic_names").iter().map(|topic| match topic {
        Value::Str(name) => name,
        _ => "",
    });
    assigned.all(|name| access.sees(Describe, Topic, name))
        && subscribed.all(|name| access.sees(Describe, Topic, name))
}

/// Hides delegation tokens of others that the client may not describe.
fn hide_tokens(access: &Access, answer: &mut Value) {
    let Some(client) = &access.client else { return };
    let is_client = |of: &Value| {
        (of.text("principal_type"), of.text("principal_name")) == (USER_TYPE, &*client.user)
    };
    let sees = |token: &Value| {
        let owner = format!("{}:{}", token.text("principal_type"), token.text("principal_name"));
        is_client(token)
            || token.items("renewers").iter().any(is_client)
            || access.sees(Describe, DelegationToken, token.text("token_id"))
            || access.sees(DescribeTokens, User, &owner)
    };
    if let Some(tokens) = answer.items_mut("tokens") {
        tokens.retain(sees);
    }
}

/// Hides the settings of topics that were created, if the client may not describe them.
fn hide_configs(access: &Access, answer: &mut Value) {
    for topic in answer.items_mut("topics").into_iter().flatten() {
        let is_seen = access.sees(DescribeConfigs, Topic, topic.text("name"));
        if let Value::Map(fields) = topic
            && !is_seen
        {
            let hidden = ["configs", "num_partitions", "replication_factor"];
            fields.retain(|(name, _)| !hidden.contains(&&**name));
            fields.push(no_configs());
        }
    }
}

/// The error beside a topic whose settings are hidden.
fn no_configs() -> Field {
    ("topic_config_error_code".into(), code(ErrorCode::TopicAuthorizationFailed).1)
}

fn code(error: ErrorCode) -> Field {
    ("error_code".into(), Value::Int(error.code().into()))
}
