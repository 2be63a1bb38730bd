"""A user's class says what clients of other projects may do, and harms nobody when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from krust import Broker, jaas
from krust.cli import main
from krust.errors import ConfigError
from tests.waiting import WAIT_S, until, until_is

EXAMPLES = Path(__file__).parents[2] / "examples/authorizers"
MODULE = """
import os, time
from teams import Teams

class Mine(Teams):
    name = "mine"

    def acls(self, client):
        match client.user:
            case "raises":
                raise LookupError("planted")
            case "hangs":
                time.sleep(3600)
            case "nonsense":
                return 7
            case "dies":
                os._exit(7)
        return super().acls(client)
"""
USERS = ("admin", "team-a-loader", "team-b-loader", "raises", "hangs", "nonsense", "dies")
PASSWORD = "secret"
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


class Guarded(NamedTuple):
    """A broker whose class decides, and the file of users that it blocks."""

    broker: Broker
    blocked: Path

    def settings(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": dict(self.broker.listeners)["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def producer(self, user: str) -> Producer:
        return Producer(self.settings(user))

    def write(self, producer: Producer, topic: str) -> int | None:
        """Produces a record; the error's code, or None."""
        answers: list[KafkaError | None] = []
        try:
            producer.produce(topic, b"value", on_delivery=lambda error, _: answers.append(error))
        except KafkaException as refused:  # librdkafka remembers that it may not
            return cast("int", refused.args[0].code())
        assert producer.flush(WAIT_S) == 0
        [error] = answers
        return None if error is None else error.code()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("authorizer")
    (folder / "class_of_mine.py").write_text(MODULE)
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    settings: dict[str, object] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas.PLAIN} required {users};",
        "authorizer.class.name": "class_of_mine:Mine",
        "authorizer.class.name.mine.blocked": str(folder / "blocked"),
        "super.users": "User:admin;User:ANONYMOUS",
        "krust.authorizer.timeout.ms": 3_000,
        "auto.create.topics.enable": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        for place in (folder, EXAMPLES):
            patch.syspath_prepend(place)
        with Broker(config=settings) as broker:
            here = Guarded(broker, folder / "blocked")
            admin = AdminClient(here.settings("admin"))
            topics = ("team-a-orders", "team-b-orders", "public-news")
            made = admin.create_topics([NewTopic(name, 1, 1) for name in topics])
            for each in made.values():
                each.result(WAIT_S)
            yield here


def test_a_user_does_what_its_acls_allow_and_no_more(guarded: Guarded) -> None:
    producer = guarded.producer("team-a-loader")
    assert guarded.write(producer, "team-a-orders") is None
    assert guarded.write(producer, "team-b-orders") == DENIED
    assert guarded.write(producer, "public-news") == DENIED
    more = {"group.id": "team-a-readers", "auto.offset.reset": "earliest"}
    with closing(Consumer({**guarded.settings("team-a-loader"), **more})) as consumer:
        consumer.subscribe(["team-a-orders"])
        found = until(lambda: consumer.poll(1))
        assert (found.error(), found.value()) == (None, b"value")
    admin = AdminClient(guarded.settings("team-a-loader"))
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics(["team-a-orders"])["team-a-orders"].result(WAIT_S)
    assert caught.value.args[0].code() == DENIED
    seen = set(admin.list_topics(timeout=WAIT_S).topics)
    assert seen == {"team-a-orders", "public-news"}, "nothing shows that others exist"


def test_a_revocation_acts_on_open_connections(guarded: Guarded) -> None:
    producer = guarded.producer("team-b-loader")
    assert guarded.write(producer, "team-b-orders") is None
    guarded.blocked.write_text("team-b-loader")
    until_is(DENIED, lambda: guarded.write(producer, "team-b-orders"))
    guarded.blocked.write_text("")
    until_is(None, lambda: guarded.write(guarded.producer("team-b-loader"), "team-b-orders"))


@pytest.mark.parametrize("user", ["raises", "hangs", "nonsense", "dies"])
def test_a_class_that_fails_for_a_user_allows_it_nothing_and_others_are_served(
    guarded: Guarded, user: str
) -> None:
    failing, good = guarded.producer(user), guarded.producer("team-a-loader")
    assert guarded.write(failing, "team-a-orders") == DENIED
    until_is(None, lambda: guarded.write(good, "team-a-orders"))
    assert guarded.write(failing, "team-a-orders") == DENIED
    assert guarded.write(guarded.producer("admin"), "team-b-orders") is None


def test_requests_about_acls_say_that_the_class_decides(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    operation, permission = AclOperation.READ, AclPermissionType.ALLOW
    one = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", operation, permission
    )
    admin = AdminClient(guarded.settings("admin"))
    with pytest.raises(KafkaException) as caught:
        admin.create_acls([one])[one].result(WAIT_S)
    assert caught.value.args[0].code() == KafkaError.SECURITY_DISABLED
    assert "authorizer.class.name is class_of_mine:Mine" in caught.value.args[0].str()
    at = dict(guarded.broker.listeners)["PLAINTEXT"]
    words = ["acl", "check", "User:team-a-loader", "--operation", "read", "--topic", "t", "-b", at]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code != 0
    said = capsys.readouterr().err
    assert "a class of the user's decides" in said
    assert "look into that class" in said


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("no_such_module:Mine", "there is no module 'no_such_module'"),
        ("broken_authorizer:Broken", "has no Broken"),
        ("broken_authorizer:Empty", "is no authorizer"),
        ("broken_authorizer:Raises", "planted"),
    ],
)
def test_a_class_that_cannot_be_loaded_stops_the_start(
    named: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "class Empty:\n    name = 'empty'\n\nclass Raises:\n    name = 'raises'\n"
    text += "    def __init__(self):\n        raise LookupError('planted')\n"
    (tmp_path / "broken_authorizer.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"(?s)authorizer.class.name = {named}.*{says}"):
        Broker(config={"authorizer.class.name": named})
