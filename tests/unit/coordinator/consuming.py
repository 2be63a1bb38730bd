"""A test bench of consumer groups: topics that can change, and heartbeats of members."""

from __future__ import annotations

from typing import Any

from krust.coordinator.events import Event, Record, TopicShape
from krust.messages import Message
from tests.unit.coordinator.bench import Bench


def topic_id(name: str, made: int = 0) -> str:
    return f"{name}{made}".rjust(22, "A")


class Cluster:
    """Topics: name -> partitions. A topic that is made again has another id."""

    def __init__(self, **topics: int) -> None:
        self.counts = dict(topics)
        self.made = dict.fromkeys(topics, 0)

    def topics(self, name: str) -> TopicShape | None:
        if name not in self.counts:
            return None
        return TopicShape(topic_id(name, self.made[name]), self.counts[name])

    def topic_of(self, wanted: str) -> str | None:
        found = [name for name in self.counts if topic_id(name, self.made[name]) == wanted]
        return found[0] if found else None

    def match(self, pattern: str) -> list[str]:
        if pattern.startswith("["):
            raise ValueError("unclosed character class")
        return [name for name in self.counts if name.startswith(pattern.removesuffix(".*"))]


class ConsumerBench(Bench):
    """A bench with topics, and members that say what they have."""

    def __init__(self, *, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.cluster = Cluster(**({"t": 3} if topics is None else topics))
        settings.setdefault("topics", self.cluster.topics)
        settings.setdefault("topic_of", self.cluster.topic_of)
        settings.setdefault("match_topics", self.cluster.match)
        super().__init__(**settings)

    def heartbeat_event(
        self, member_id: str, epoch: int, version: int = 1, **more: Any
    ) -> Event[Message]:
        message = {
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **more,
        }
        if epoch == 0:
            joining = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
            if "subscribed_topic_regex" not in more:
                joining["subscribed_topic_names"] = ["t"]
            message |= {key: each for key, each in joining.items() if key not in more}
        if isinstance(message["topic_partitions"], str):
            message["topic_partitions"] = spelled(message["topic_partitions"])
        return self.event("ConsumerGroupHeartbeat", version, **message)

    def heartbeat(self, member_id: str, epoch: int, version: int = 1, **more: Any) -> Message:
        """The answer. `topic_partitions` may be a text like "t0 t1 u3"."""
        event = self.heartbeat_event(member_id, epoch, version, **more)
        self.batch(event)
        return self.answers[event.ticket]

    def code(self, member_id: str, epoch: int, version: int = 1, **more: Any) -> int:
        answer = self.heartbeat(member_id, epoch, version, **more)
        code: int = answer["error_code"]
        assert code == 0 or answer["member_epoch"] == 0
        return code

    def change(self, **topics: int | None) -> None:
        """Give topics these numbers of partitions; None deletes a topic."""
        for name, count in topics.items():
            if count is None:
                del self.cluster.counts[name]
            else:
                self.cluster.made.setdefault(name, 0)
                self.cluster.counts[name] = count
        self.notify("TopicsChanged", group_id="", names=list(topics))

    def settle(self, *members: str) -> dict[str, str]:
        """Send heartbeats until each member has its target. Returns the targets."""
        held = dict.fromkeys(members, "")
        epochs = {each: self.row(each)["epoch"] for each in members}
        for _ in range(4):
            for each in members:
                answer = self.heartbeat(
                    each,
                    epochs[each],
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=self.names(each),
                    topic_partitions=held[each],
                )
                assert answer["error_code"] == 0, answer
                epochs[each] = answer["member_epoch"]
                held[each] = shown(answer)
        return held

    def names(self, member_id: str) -> list[str]:
        (group,) = self.described()
        (found,) = [each for each in group["members"] if each["member_id"] == member_id]
        names: list[str] = found["subscribed_topic_names"]
        return names

    def written(self) -> list[Record]:
        """All records of consumer groups."""
        return [one for _, each in self.log if isinstance(each, list) for one in each]

    def described(self, *groups: str) -> list[Message]:
        asked = list(groups or (self.group_id,))
        answer = self.send("ConsumerGroupDescribe", 1, group_id="", group_ids=asked)
        assert answer is not None
        found: list[Message] = answer["groups"]
        return found

    def row(self, member_id: str) -> Message:
        row: Message = self.snapshot["members"][member_id]
        return row

    @property
    def epoch(self) -> int:
        epoch: int = self.snapshot["epoch"]
        return epoch


def spelled(text: str) -> list[Message]:
    """`t0 t1 u3` as a heartbeat has it."""
    found: dict[str, list[int]] = {}
    for one in text.split():
        found.setdefault(topic_id(one[0]), []).append(int(one[1:]))
    return [{"topic_id": each, "partitions": numbers} for each, numbers in found.items()]


def shown(answer: Message) -> str:
    """What an answer assigns, as a text; `-`: nothing was said."""
    assignment = answer["assignment"]
    if assignment is None:
        return "-"
    return " ".join(
        f"{topic['topic_id'].lstrip('A')[0]}{number}"
        for topic in assignment["topic_partitions"]
        for number in topic["partitions"]
    )
