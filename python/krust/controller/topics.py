"""Topics: create, delete, more partitions, creation on first use.

CreateTopics 0-7: decides each topic by itself; -1 partitions or replicas take the broker's default;
    `validate_only` answers without creating. One transaction a topic: settings, assignment, states.
DeleteTopics 0-6: by name, from v6 by id too. A broker with a tree of its own deletes the znodes of
    a topic in some transactions, the topic's own last, and removes its partitions from the image in
    slices. If others use the tree, it writes a mark (`deletion.py`). The core deletes the files
    when the image loses the partition.
CreatePartitions 0-3: only more partitions; new ones start at leader epoch 0.
All three, and creation on first use, count against `controller_mutation_rate` (`mutations.py`).
They create or delete as many topics together as one slice (`pace.py`) allows. DeleteTopics answers
at most twice for one name.
Version notes: errors and messages are the same in all versions.
Not done: topic policies in Java (`create.topic.policy.class.name` is refused at the start).
Source: KIP-4, KIP-195, KIP-464, KIP-516, KIP-525, KIP-599.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

from krust.controller import configs, topic_plans
from krust.controller.mutations import Charge
from krust.controller.pace import BATCHED, PAUSE, Pace
from krust.controller.state import (
    NO_TOPIC_ID,
    ControllerState,
    Decision,
    RefusedError,
    Request,
    Steps,
    chunks,
    refused_code,
    write_all,
)
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import EntityConfig
from krust.metadata.store import Create, Delete, Operation, Refusal, SetData

if TYPE_CHECKING:
    from krust.controller.entities import Topic
    from krust.controller.own_requests import (
        AutoCreateRequest,
        AutoCreateResponse,
        AutoCreateResult,
    )
    from krust.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopicResult,
    )
    from krust.messages.create_topics import (
        CreatableTopicResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )
    from krust.messages.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )

_DESCRIBED_SINCE = 5
"""the version of CreateTopics from which on the answer describes the topic"""
_DESCRIPTION = 40  # parts of a slice that it takes to say so
_PARTITIONS_PER_DROP = 50
"""partitions whose directories are renamed together; about 2 ms"""
_DELETES_PER_TRANSACTION = 200
"""znodes of a topic that one transaction deletes"""
_ANSWERS_PER_NAME = 2
"""how often DeleteTopics answers for a name: the second time it says that it was named twice"""


def create(
    state: ControllerState, request: Request[CreateTopicsRequest]
) -> Decision[CreateTopicsResponse]:
    """CreateTopics."""
    asked = request.message["topics"]
    only_check = bool(request.message.get("validate_only"))
    twice = _repeated_names([topic["name"] for topic in asked])
    refused_twice: set[str] = set()
    charge = Charge(state, request)
    results: list[CreatableTopicResult] = []
    planned: list[tuple[CreatableTopicResult, Topic]] = []
    pace = Pace()
    for wanted in asked:
        if pace.add():
            yield from _create_planned(state, planned)
            planned = []
            yield PAUSE
        result = _new_result(wanted["name"])
        if wanted["name"] in twice:
            if wanted["name"] in refused_twice:
                continue
            refused_twice.add(wanted["name"])
            refusal = RefusedError(
                Code.INVALID_REQUEST, f"the request names {wanted['name']} more than once"
            )
            results.append(_set_refusal(result, refusal))
            continue
        results.append(result)
        try:
            topic = topic_plans.plan_topic(state, wanted)
            if not only_check:
                charge.take(len(topic.partitions))
        except RefusedError as refused:
            _set_refusal(result, refused)
            continue
        parts = 1
        if request.version >= _DESCRIBED_SINCE:
            _add_description(state, result, topic)
            parts = _DESCRIPTION
        if not only_check:
            planned.append((result, topic))
            parts += BATCHED * (1 + len(topic.partitions))
        if pace.add(parts):
            yield from _create_planned(state, planned)
            planned = []
            yield PAUSE
    yield from _create_planned(state, planned)
    return {"throttle_time_ms": charge.throttle_time_ms, "topics": results}


def _create_planned(
    state: ControllerState, planned: list[tuple[CreatableTopicResult, Topic]]
) -> Steps:
    """Create planned topics, and fill in their results."""
    if not planned:
        return
    answers = yield from write_all([creation_transactions(state, topic) for _, topic in planned])
    for (result, topic), refused_by in zip(planned, answers, strict=True):
        # Whoever sees a topic half made finishes it: then the rest of ours is there already.
        finished = refused_by is Refusal.NODE_EXISTS and state.current_topic(topic.name, topic.id)
        if refused_by is None or finished:
            state.add_created(topic)
            result["topic_id"] = topic.id
        else:
            _set_refusal(result, _store_refusal(refused_by, topic.name, creating=True))


def delete(
    state: ControllerState, request: Request[DeleteTopicsRequest]
) -> Decision[DeleteTopicsResponse]:
    """DeleteTopics."""
    by_name = ((name, NO_TOPIC_ID) for name in request.message.get("topic_names") or ())
    by_either = (
        (each.get("name"), each.get("topic_id") or NO_TOPIC_ID)
        for each in request.message.get("topics") or ()
    )
    charge = Charge(state, request)
    results: list[DeletableTopicResult] = []
    planned: list[tuple[DeletableTopicResult, Topic]] = []
    deleted: set[str] = set()
    times: Counter[tuple[str | None, str]] = Counter()
    pace = Pace()
    for name, topic_id in chain(by_either, by_name):
        if pace.add():
            yield PAUSE
        times[name, topic_id] += 1
        if times[name, topic_id] > _ANSWERS_PER_NAME:
            continue
        result: DeletableTopicResult = {
            "name": name,
            "topic_id": topic_id,
            "error_code": Code.NONE,
            "error_message": None,
        }
        results.append(result)
        try:
            topic = _to_delete(state, request.version, name, topic_id)
        except RefusedError as refused:
            _set_refusal(result, refused)
            continue
        result |= {"name": topic.name, "topic_id": topic.id}
        if topic.name in deleted:
            _set_refusal(result, RefusedError(Code.INVALID_REQUEST, "the topic is named twice"))
            continue
        deleted.add(topic.name)
        try:
            charge.take(len(topic.partitions))
        except RefusedError as refused:
            _set_refusal(result, refused)
            continue
        planned.append((result, topic))
        if pace.add(BATCHED * (1 + len(topic.partitions))):
            yield from _delete_planned(state, planned)
            planned = []
            yield PAUSE
    yield from _delete_planned(state, planned)
    return {"throttle_time_ms": charge.throttle_time_ms, "responses": results}


def _delete_planned(
    state: ControllerState, planned: list[tuple[DeletableTopicResult, Topic]]
) -> Steps:
    """Delete planned topics, or fill in why they stay."""
    if not planned:
        return
    if state.shared:
        from krust.controller import deletion

        answers = yield from deletion.mark(state, [topic for _, topic in planned])
    else:
        answers = yield from write_all(
            [_deletion_transactions(state, topic) for _, topic in planned]
        )
    for (result, topic), refused_by in zip(planned, answers, strict=True):
        if refused_by is None:
            yield from _drop_from_image(state, topic)
        else:
            _set_refusal(result, _store_refusal(refused_by, topic.name, creating=False))


def _drop_from_image(state: ControllerState, topic: Topic) -> Steps:
    """Remove a deleted topic from the image. A broker with a tree of its own does that in slices,
    because the core renames a directory for each partition. A new topic of that name ends it.
    """
    state.drop(topic.name)
    if state.shared:
        return
    for end in range(_PARTITIONS_PER_DROP, len(topic.partitions), _PARTITIONS_PER_DROP):
        gone = (each._replace(replicas=(), isr=(), leader=-1) for each in topic.partitions[:end])
        left = topic._replace(partitions=(*gone, *topic.partitions[end:]))
        state.changes.topics[topic.name] = left
        yield PAUSE
        if topic.name in state.topics:
            return
        state.changes.topics[topic.name] = None


def create_partitions(
    state: ControllerState, request: Request[CreatePartitionsRequest]
) -> Decision[CreatePartitionsResponse]:
    """CreatePartitions."""
    asked = request.message["topics"]
    twice = _repeated_names([topic["name"] for topic in asked])
    charge = Charge(state, request)
    results: list[CreatePartitionsTopicResult] = []
    planned: list[tuple[CreatePartitionsTopicResult, Topic, Topic]] = []
    pace = Pace()
    for wanted in asked:
        if pace.add():
            yield from _add_partitions(state, planned)
            planned = []
            yield PAUSE
        result: CreatePartitionsTopicResult = {
            "name": wanted["name"],
            "error_code": Code.NONE,
            "error_message": None,
        }
        results.append(result)
        try:
            if wanted["name"] in twice:
                raise RefusedError(Code.INVALID_REQUEST, "the request names the topic twice")
            topic, grown = topic_plans.plan_growth(state, wanted)
            if not request.message.get("validate_only"):
                charge.take(len(grown.partitions) - len(topic.partitions))
        except RefusedError as refused:
            _set_refusal(result, refused)
            continue
        if not request.message.get("validate_only"):
            planned.append((result, topic, grown))
        if pace.add(BATCHED * (1 + len(grown.partitions))):
            yield from _add_partitions(state, planned)
            planned = []
            yield PAUSE
    yield from _add_partitions(state, planned)
    return {"throttle_time_ms": charge.throttle_time_ms, "results": results}


def _add_partitions(
    state: ControllerState, planned: list[tuple[CreatePartitionsTopicResult, Topic, Topic]]
) -> Steps:
    """Create planned partitions, or fill in why there are none."""
    if not planned:
        return
    answers = yield from write_all(
        [_growth_transactions(state, old, grown) for _, old, grown in planned]
    )
    for (result, _, grown), refused_by in zip(planned, answers, strict=True):
        if refused_by is None:
            _merge_grown(state, grown)
        else:
            _set_refusal(result, _store_refusal(refused_by, grown.name, creating=False))


def auto_create(
    state: ControllerState, request: Request[AutoCreateRequest]
) -> Decision[AutoCreateResponse]:
    """AutoCreate: create the topics that a Metadata request named. An existing one is no error."""
    names = request.message["topics"]
    charge = Charge(state, request)
    results: list[AutoCreateResult] = []
    planned: list[tuple[AutoCreateResult, Topic]] = []
    pace = Pace()
    for name in dict.fromkeys(names):
        if pace.add():
            yield from _create_missing(state, planned)
            planned = []
            yield PAUSE
        result: AutoCreateResult = {"name": name, "error_code": Code.NONE}
        results.append(result)
        if name in state.topics:
            continue
        try:
            topic = topic_plans.plan_topic(state, topic_plans.with_defaults(name))
            charge.take(len(topic.partitions))
        except RefusedError as refused:
            result["error_code"] = refused.code
            continue
        planned.append((result, topic))
        if pace.add(BATCHED * (1 + len(topic.partitions))):
            yield from _create_missing(state, planned)
            planned = []
            yield PAUSE
    yield from _create_missing(state, planned)
    return {"topics": results}


def _create_missing(state: ControllerState, planned: list[tuple[AutoCreateResult, Topic]]) -> Steps:
    """Create topics that another broker may create at the same time."""
    if not planned:
        return
    answers = yield from write_all([creation_transactions(state, topic) for _, topic in planned])
    for (result, topic), refused_by in zip(planned, answers, strict=True):
        if refused_by is None:
            state.add_created(topic)
        elif refused_by is not Refusal.NODE_EXISTS:
            result["error_code"] = _store_refusal(refused_by, topic.name, creating=True).code


def creation_transactions(state: ControllerState, topic: Topic) -> list[list[Operation]]:
    """The transactions that create a topic: settings first, as Kafka's tools expect it.

    One is enough for two thousand partitions. If the broker ends between two of them, it creates
    the missing states when it becomes the leader of those partitions (`adoption.py`).
    """
    path = znodes.topic(topic.name)
    return chunks(
        state.fence(),
        [
            Create(znodes.topic_config(topic.name), EntityConfig(topic.config).encode()),
            Create(path, topic.assignment().encode()),
            Create(f"{path}/partitions"),
            *_state_creates(state, topic, 0),
        ],
    )


def _state_creates(state: ControllerState, topic: Topic, first: int) -> list[Operation]:
    """The znodes of the partitions from `first` on."""
    operations: list[Operation] = []
    for index, each in enumerate(topic.partitions[first:], first):
        made = state.write_of(topic.name, index, each)
        operations += [Create(made.path.removesuffix("/state")), made]
    return operations


def _deletion_transactions(state: ControllerState, topic: Topic) -> list[list[Operation]]:
    operations: list[Operation] = []
    for index in range(len(topic.partitions)):
        path = znodes.state(topic.name, index)
        operations += [Delete(path), Delete(path.removesuffix("/state"))]
    path = znodes.topic(topic.name)
    operations += [
        Delete(f"{path}/partitions"),
        Delete(path),
        Delete(znodes.topic_config(topic.name)),
    ]
    parts = range(0, len(operations), _DELETES_PER_TRANSACTION)
    return [
        [state.fence(), *operations[first : first + _DELETES_PER_TRANSACTION]] for first in parts
    ]


def _growth_transactions(
    state: ControllerState, topic: Topic, grown: Topic
) -> list[list[Operation]]:
    data = grown.assignment().encode()
    operations: list[Operation] = [SetData(znodes.topic(topic.name), data, topic.version)]
    operations += _state_creates(state, grown, len(topic.partitions))
    return chunks(state.fence(), operations)


def _merge_grown(state: ControllerState, grown: Topic) -> None:
    """Put written partitions into the state. Other changes of the topic since then stay."""
    now = state.current_topic(grown.name, grown.id)
    if now is not None and now.version < grown.version:
        added = grown.partitions[len(now.partitions) :]
        state.put(now._replace(partitions=now.partitions + added, version=grown.version))


def _to_delete(state: ControllerState, version: int, name: str | None, topic_id: str) -> Topic:
    if state.broker_text("delete.topic.enable") == "false":
        code = Code.TOPIC_DELETION_DISABLED if version >= 3 else Code.INVALID_REQUEST
        raise RefusedError(code, "Topic deletion is disabled.")
    if name is not None and topic_id != NO_TOPIC_ID:
        raise RefusedError(Code.INVALID_REQUEST, "a topic is named by name or by id, not by both")
    if name is None:
        found = state.names.get(topic_id)
        if found is None:
            raise RefusedError(Code.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        name = found
    topic = state.topics.get(name)
    if topic is None:
        raise RefusedError(
            Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    return topic


def _new_result(name: str) -> CreatableTopicResult:
    """The result of one new topic, before its fields are known."""
    return {
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "error_code": Code.NONE,
        "error_message": None,
        "topic_config_error_code": Code.NONE,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _add_description(state: ControllerState, result: CreatableTopicResult, topic: Topic) -> None:
    """Add the description of the topic to its result."""
    result["num_partitions"] = len(topic.partitions)
    result["replication_factor"] = len(topic.partitions[0].replicas)
    result["configs"] = [
        {
            "name": entry["name"],
            "value": entry["value"],
            "read_only": entry["read_only"],
            "config_source": entry["config_source"],
            "is_sensitive": entry["is_sensitive"],
        }
        for entry in configs.topic_entries(state, topic, None)
    ]


def _set_refusal(result: Any, refused: RefusedError) -> Any:
    """Turn a result into a refusal."""
    result["error_code"] = refused.code
    result["error_message"] = str(refused)
    if "num_partitions" in result:
        result |= {"num_partitions": -1, "replication_factor": -1, "configs": []}
    return result


def _store_refusal(reason: Refusal, name: str, *, creating: bool) -> RefusedError:
    """The error for the client after the store refused a transaction."""
    if creating and reason is Refusal.NODE_EXISTS:
        return RefusedError(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if reason is Refusal.BAD_VERSION:
        return RefusedError(Code.NOT_CONTROLLER, "the topic or the controller changed meanwhile")
    if reason is Refusal.TOO_LARGE:
        return RefusedError(Code.INVALID_PARTITIONS, "the topic is too large for the store")
    if reason is Refusal.NO_NODE:
        return RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "the topic is gone")
    return RefusedError(refused_code(reason), f"the metadata store: {reason.value}")


def _repeated_names(names: list[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if times > 1}
