//! What of a request that the policy decides is allowed. The policy sees only what is allowed, and
//! of its answer the client sees only what it may know.
//!
//! Behaviour: an operation on the cluster that is not allowed refuses the whole request with
//!     CLUSTER_AUTHORIZATION_FAILED (31). Of a list, items that are not allowed are answered here
//!     with TOPIC_AUTHORIZATION_FAILED (29), GROUP_AUTHORIZATION_FAILED (30) or 31, whether or not
//!     they exist, and the others are passed on. Which operations: the API table.
//! Threads: the network thread of the request; an answer is filtered on the thread that gives it.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::broker::requests::access::Access;
use crate::broker::requests::apis::Needs;
use crate::broker::requests::call::Call;
use crate::broker::requests::decisions::AnswerFilter;
use crate::broker::state::acls::Operation::{
    AlterConfigs, Delete, Describe, DescribeConfigs, Read,
};
use crate::broker::state::acls::{Operation, ResourceType};
use crate::broker::state::image::ClusterImage;
use crate::protocol::value::Value;
use crate::protocol::{
    ErrorCode, alter_client_quotas, alter_configs, alter_replica_log_dirs,
    alter_user_scram_credentials, consumer_group_describe, create_acls, create_partitions,
    create_topics, delete_acls, delete_groups, delete_topics, describe_configs, describe_groups,
    elect_leaders, incremental_alter_configs, join_group, leave_group, list_groups, offset_commit,
    offset_fetch, sync_group,
};

use ResourceType::{Cluster, Group, Topic};

const TOPIC: i64 = 2;
const GROUP: i64 = 32;

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
    let group =
        |operation| move |access: &Access, item: &Value| group_entry(access, operation, item);
    match key {
        join_group::KEY | leave_group::KEY | sync_group::KEY => of_member(&access, request),
        describe_groups::KEY => of_list(&access, request, (&["groups"], "groups"), group(Describe)),
        consumer_group_describe::KEY => {
            of_list(&access, request, (&["group_ids"], "groups"), group(Describe))
        }
        delete_groups::KEY => {
            of_list(&access, request, (&["groups_names"], "results"), group(Delete))
        }
        create_topics::KEY => of_list(&access, request, (&["topics"], "topics"), |access, item| {
            let name = text(item, "name");
            let mut fields = vec![("name".into(), name.into())];
            if !access.sees(DescribeConfigs, Topic, name) {
                fields.push(no_configs());
            }
            refused(access.may_create(name), Topic, fields)
        }),
        create_partitions::KEY => {
            of_list(&access, request, (&["topics"], "results"), |access, item| {
                let name = text(item, "name");
                let is_allowed = access.check(Operation::Alter, Topic, name);
                refused(is_allowed, Topic, vec![("name".into(), name.into())])
            })
        }
        delete_topics::KEY => {
            let image = call.image();
            let lists: &[_] = &["topic_names", "topics"];
            of_list(&access, request, (lists, "responses"), |access, item| {
                deletion_entry(access, &image, item)
            })
        }
        describe_configs::KEY => {
            of_list(&access, request, (&["resources"], "results"), |access, item| {
                config_entry(access, DescribeConfigs, item)
            })
        }
        alter_configs::KEY | incremental_alter_configs::KEY => {
            of_list(&access, request, (&["resources"], "responses"), |access, item| {
                config_entry(access, AlterConfigs, item)
            })
        }
        offset_commit::KEY => of_old_offsets(&access, request, Read),
        offset_fetch::KEY => of_old_offsets(&access, request, Describe),
        _ => Admission::Ask { request, settled: Vec::new() },
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
        _ => return None,
    };
    Some(AnswerFilter { access, hide })
}

/// A member's request about its group.
fn of_member(access: &Access, request: Value) -> Admission {
    if access.check(Read, Group, text(&request, "group_id")) {
        return Admission::Ask { request, settled: Vec::new() };
    }
    let mut fields = vec![code(ErrorCode::GroupAuthorizationFailed)];
    if access.api.key == join_group::KEY {
        fields.push(("member_id".into(), text(&request, "member_id").into()));
        fields.push(("protocol_name".into(), "".into()));
    }
    Admission::Answer(Value::Map(fields))
}

/// A request for lists of independent items. `refuse` returns the answer to an item that is not
/// allowed.
fn of_list(
    access: &Access,
    mut request: Value,
    (asked, answered): (&[&str], &'static str),
    refuse: impl Fn(&Access, &Value) -> Option<Value>,
) -> Admission {
    let mut settled = Vec::new();
    let mut is_left = false;
    if let Value::Map(fields) = &mut request {
        for (name, value) in fields {
            let Value::List(items) = value else { continue };
            if asked.contains(&&**name) {
                items.retain(|item| match refuse(access, item) {
                    None => true,
                    Some(entry) => {
                        settled.push(entry);
                        false
                    }
                });
                is_left |= !items.is_empty();
            }
        }
    }
    match is_left || settled.is_empty() {
        true => Admission::Ask { request, settled },
        false => Admission::Answer(Value::Map(vec![(answered.into(), Value::List(settled))])),
    }
}

fn group_entry(access: &Access, operation: Operation, item: &Value) -> Option<Value> {
    let Value::Str(group_id) = item else { return None };
    let is_allowed = access.check(operation, Group, group_id);
    let fields = vec![("group_id".into(), item.clone()), code(ErrorCode::GroupAuthorizationFailed)];
    (!is_allowed).then_some(Value::Map(fields))
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
        _ => text(item, "name").to_owned(),
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
    let (kind, name) = (item.field("resource_type")?, text(item, "resource_name"));
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
    let group = access.check(of_group, Group, text(&request, "group_id"));
    of_list(access, request, (&["topics"], "topics"), |access, topic| {
        let name = text(topic, "name");
        let error = match group {
            false => ErrorCode::GroupAuthorizationFailed,
            true if access.check(of_group, Topic, name) => return None,
            true => ErrorCode::TopicAuthorizationFailed,
        };
        let indexes = items(topic, "partition_indexes").to_vec();
        let committed = items(topic, "partitions").iter();
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
        let entries = items(request, list).iter().map(|item| {
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
            let entity = |item: &Value| vec![("entity".into(), list(item, "entity"))];
            vec![("entries".into(), each("entries", &entity))]
        }
        alter_user_scram_credentials::KEY => {
            let (mut users, mut seen) = (Vec::new(), HashSet::new());
            let deleted = items(request, "deletions").iter();
            for change in deleted.chain(items(request, "upsertions")) {
                let user = text(change, "name");
                if seen.insert(user) {
                    users.push(Value::Map(vec![("user".into(), user.into()), error()]));
                }
            }
            vec![("results".into(), Value::List(users))]
        }
        alter_replica_log_dirs::KEY => {
            let topics = items(request, "dirs").iter().flat_map(|dir| items(dir, "topics"));
            let topic = |topic| {
                let name = ("topic_name".into(), text(topic, "name").into());
                let indexes = items(topic, "partitions").iter().cloned();
                let partition =
                    |index| Value::Map(vec![("partition_index".into(), index), error()]);
                let partitions = Value::List(indexes.map(partition).collect());
                Value::Map(vec![name, ("partitions".into(), partitions)])
            };
            vec![("results".into(), Value::List(topics.map(topic).collect()))]
        }
        elect_leaders::KEY => {
            let topic = |topic| {
                let name = ("topic".into(), text(topic, "topic").into());
                let indexes = items(topic, "partitions").iter().cloned();
                let partition = |index| Value::Map(vec![("partition_id".into(), index), error()]);
                let partitions = Value::List(indexes.map(partition).collect());
                Value::Map(vec![name, ("partition_result".into(), partitions)])
            };
            let topics = items(request, "topic_partitions").iter().map(topic).collect();
            vec![error(), ("replica_election_results".into(), Value::List(topics))]
        }
        _ => vec![error()],
    };
    Value::Map(fields)
}

/// Hides the groups of ListGroups that the client may not describe.
fn hide_groups(access: &Access, answer: &mut Value) {
    if !access.sees_cluster(Describe)
        && let Some(groups) = items_mut(answer, "groups")
    {
        groups.retain(|group| access.sees(Describe, Group, text(group, "group_id")));
    }
}

/// Tells the operations on groups that the client may do, and of no topic that it may not describe.
fn hide_of_groups(access: &Access, answer: &mut Value) {
    for group in items_mut(answer, "groups").into_iter().flatten() {
        let group_id = text(group, "group_id").to_owned();
        if !items(group, "members").iter().all(|member| sees_topics_of(access, member)) {
            *group = Value::Map(vec![
                ("group_id".into(), Value::Str(group_id)),
                code(ErrorCode::TopicAuthorizationFailed),
                ("error_message".into(), "a member reads topics that you may not describe".into()),
            ]);
        } else if let Some(Value::Int(operations)) = field_mut(group, "authorized_operations")
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
        found.map_or(&[][..], |found| items(found, "topic_partitions"))
    });
    let mut assigned = assigned.map(|topic| text(topic, "topic_name"));
    let mut subscribed = items(member, "subscribed_topic_names").iter().map(|topic| match topic {
        Value::Str(name) => name,
        _ => "",
    });
    assigned.all(|name| access.sees(Describe, Topic, name))
        && subscribed.all(|name| access.sees(Describe, Topic, name))
}

/// Hides the settings of topics that were created, if the client may not describe them.
fn hide_configs(access: &Access, answer: &mut Value) {
    for topic in items_mut(answer, "topics").into_iter().flatten() {
        let is_seen = access.sees(DescribeConfigs, Topic, text(topic, "name"));
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

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    match value.field(name) {
        Some(Value::Str(text)) => text,
        _ => "",
    }
}

fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    match value.field(name) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn list(value: &Value, name: &str) -> Value {
    Value::List(items(value, name).to_vec())
}

fn field_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    let Value::Map(fields) = value else { return None };
    fields.iter_mut().find(|(field, _)| field == name).map(|(_, value)| value)
}

fn items_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Vec<Value>> {
    match field_mut(value, name) {
        Some(Value::List(items)) => Some(items),
        _ => None,
    }
}
