"""Convert a classic group to a consumer group and back while members work.

The numbers continue: a consumer group's epoch begins where the generations ended, and the
generations of a classic group begin where the epochs ended, so no number has two meanings. A member
keeps the partitions of its last assignment.
Source: Kafka 4.3, KIP-848 "upgrade and downgrade". Difference: a member has the assignment that is
in the log, not the one that the current rebalance would give it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.coordinator.classic_group import ClassicGroup
from krust.coordinator.classic_member import ClassicMember as ClassicMember
from krust.coordinator.consumer import records
from krust.coordinator.consumer.group import ConsumerGroup
from krust.coordinator.consumer.member import ClassicProtocols, ConsumerMember
from krust.coordinator.consumer.target import topics_hash, with_topic_ids, with_topic_names
from krust.coordinator.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from krust.coordinator.states import EMPTY, STABLE
from krust.errors import Code

if TYPE_CHECKING:
    from krust.coordinator.classic_member import Turn
    from krust.coordinator.events import GroupSettings

PLAIN_PROTOCOLS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Protocols whose assignments have only partitions. (librdkafka adds data that no member reads.)
The assignments of other protocols have user data, which a conversion would lose."""


def to_consumer_group(group: ClassicGroup, settings: GroupSettings, now_ms: int) -> ConsumerGroup:
    """A consumer group with the members of a classic group, which stays as it is.

    raises  ValueError: the group cannot be converted; why
    """
    why = f"Cannot upgrade classic group {group.id} to consumer group because"
    if group.members:
        if not settings.upgrades:
            raise ValueError(f"{why} online upgrade is disabled.")
        if group.protocol_type != PROTOCOL_TYPE:
            raise ValueError(f"{why} the group does not use the consumer embedded protocol.")
        if len(group.members) > settings.consumer_max_size:
            raise ValueError(f"{why} the group size exceeds the consumer group maximum size.")
    new = ConsumerGroup(group.id, now_ms)
    new.epoch = new.assignment_epoch = max(group.generation, group.issued_generation)
    new.pending = dict.fromkeys(group.pending)
    new.history = group.history
    stored_value = group.stored_value["members"] if group.stored_value is not None else []
    stored = {each["member_id"]: each["assignment"] for each in stored_value}
    for each in group.members.values():
        try:
            member = _member(each, group, stored.get(each.id, b""), settings)
        except ValueError as error:
            raise ValueError(f"{why} {each.id} cannot be taken over: {error}.") from error
        new.add_member(member)
        new.target[member.id] = member.assigned
    for each in group.members.values():
        _keep_owned_partitions(new, each, group, settings)
    new.state = new.current_state()
    return new


def upgrade(turn: Turn, group: ClassicGroup, new: ConsumerGroup) -> None:
    """Replace a classic group by a consumer group, in the log too."""
    group.cancel_for_conversion(turn)
    for each in group.members.values():
        new.members[each.id].restart_session = each.restart_session
    if group.stored_generation:
        turn.out.records.append((group.id, None))
    members = list(new.members.values())
    if members:
        new.topics_hash = topics_hash(new.subscribed(), turn.settings)
        new.write(
            turn,
            *(records.member(each) for each in members),
            records.epoch(new.epoch, new.topics_hash),
            *(records.target(each.id, new.target[each.id]) for each in members),
            records.target_epoch(new.assignment_epoch),
            *(records.current(each) for each in members),
        )
    new.request_new_target(turn, "", "a member of the consumer protocol joins")


def downgrade(turn: Turn, group: ConsumerGroup, why: str) -> ClassicGroup:
    """Replace a consumer group, which has only classic members or none, by a classic group. Its
    members are called to join.
    """
    for each in list(group.delayed):
        group.refuse_delayed(turn, each.member_id, Code.COORDINATOR_NOT_AVAILABLE)
    turn.out.records.append((group.id, group.tombstones()))
    new = ClassicGroup(group.id, turn.now_ms)
    new.generation = new.stored_generation = new.issued_generation = group.epoch
    new.protocol_type = PROTOCOL_TYPE
    new.history = group.history
    for member in group.members.values():
        new.add_member(_classic_member(member, turn.settings))
    _, session_ms = turn.settings.timing(group.id)
    for member_id in group.pending:
        new.add_pending(member_id, turn.now_ms + session_ms)
    new.state = STABLE if new.members else EMPTY
    new.protocol = new.select_protocol() if new.members else None
    new.subscribed = new.topics()
    new.leader = None  # after a restart it shows that the members have to be called to join
    new.store(turn)
    turn.dirty[new.id] = None
    if new.members:
        new.request_rejoin(turn, why)
    return new


def _member(
    each: ClassicMember, group: ClassicGroup, assignment: bytes, settings: GroupSettings
) -> ConsumerMember:
    """A classic member as a member of a consumer group."""
    subscription = _subscription_of(each, group)
    assignment_before = read_assignment(assignment)
    if assignment_before.user_data and group.protocol not in PLAIN_PROTOCOLS:
        raise ValueError("its assignor's own data would be lost")
    return ConsumerMember(
        each.id,
        instance_id=each.instance_id,
        rack=subscription.rack,
        client_id=each.client_id,
        client_host=each.client_host,
        names=frozenset(subscription.topics),
        rebalance_timeout_ms=each.rebalance_timeout_ms,
        classic=ClassicProtocols(each.session_timeout_ms, each.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=with_topic_ids(assignment_before.partitions, settings),
        connection=each.connection,
    )


def _keep_owned_partitions(
    new: ConsumerGroup, each: ClassicMember, group: ClassicGroup, settings: GroupSettings
) -> None:
    """Let a cooperative member own the partitions that it had when it joined. It gives them up only
    after its sync, which may not have come yet.
    """
    member = new.members[each.id]
    claimed = with_topic_ids(_subscription_of(each, group).owned, settings) - new.owners.keys()
    new.release_partitions(member)
    member.assigned |= claimed
    new.claim_partitions(member)


def _subscription_of(each: ClassicMember, group: ClassicGroup) -> Subscription:
    return read_subscription(each.metadata(group.protocol) or each.protocols[0][1])


def _classic_member(member: ConsumerMember, settings: GroupSettings) -> ClassicMember:
    """A member of a consumer group as a classic member."""
    classic = member.classic
    if classic is None:
        raise AssertionError(f"{member.id} speaks the consumer protocol")
    version = read_subscription(classic.protocols[0][1]).version
    assignment_before = Assignment(
        tuple(with_topic_names(member.assigned, settings)), None, version
    )
    return ClassicMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.connection,
        classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        classic.protocols,
        write_assignment(assignment_before),
    )
