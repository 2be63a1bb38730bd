"""Dev and prod mode: how it is chosen, the banner, and the effect on groups."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import krust
from krust._krust import Client
from krust.coordinator.consumer_protocol import Subscription, write_subscription
from tests.coordinated import ready
from tests.serving import ServedBroker
from tests.waiting import until

DELAY_MS = 3000
METADATA = write_subscription(Subscription(("t",)))


@pytest.fixture(scope="module", params=["--dev", "--prod"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("modes")
    with ServedBroker(folder / "data", request.param) as served:
        yield served


@pytest.fixture
def is_dev(broker: ServedBroker) -> bool:
    return " dev: " in banner(broker)


def banner(broker: ServedBroker) -> str:
    """The line about the mode; it comes a moment after the broker is ready."""

    def lines() -> list[str]:
        found = broker.stderr().splitlines(keepends=True)
        return [line for line in found if line.startswith("  mode ") and line.endswith("\n")]

    return str(until(lines)[0]).rstrip("\n")


def test_the_banner_names_the_mode_and_what_it_means(broker: ServedBroker, is_dev: bool) -> None:
    dev = "dev: a new group waits 0 ms for more members, a member leaves 500 ms after its "
    dev += "connection closes"
    prod = "prod: a new group waits 3000 ms for more members, a member leaves when its session ends"
    assert banner(broker) == "  mode      " + (dev if is_dev else prod)


def test_loopback_is_dev_and_the_banner_shows_what_was_set(tmp_path: Path) -> None:
    options: dict[str, object] = {
        "group.initial.rebalance.delay.ms": 7,
        "krust.group.server.assignor": "a-*=uniform",
    }
    with ServedBroker(tmp_path / "data", options=options) as served:
        assert "  mode      dev: a new group waits 7 ms for" in banner(served)
        assert banner(served).endswith(", krust assigns in a-*=uniform")


def join(client: Client, group: str, **more: Any) -> dict[str, Any]:
    body = {
        "group_id": group,
        "session_timeout_ms": 600_000,
        "rebalance_timeout_ms": 600_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
    }
    ready(client, group)
    return client.request("JoinGroup", {**body, **more}, 3)


def sync(client: Client, group: str, joined: dict[str, Any]) -> None:
    one = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
    share = [{"member_id": joined["member_id"], "assignment": b""}]
    answer = client.request("SyncGroup", {"group_id": group, **one, "assignments": share}, 3)
    assert answer["error_code"] == 0


def members(client: Client, group: str) -> int:
    [found] = client.request("DescribeGroups", {"groups": [group]}, 5)["groups"]
    return len(found["members"])


def test_a_lone_member_waits_for_others_in_prod_mode_only(
    broker: ServedBroker, is_dev: bool
) -> None:
    client = Client(broker.bootstrap)
    ready(client, "waits")
    begun = time.monotonic()
    assert join(client, "waits")["generation_id"] == 1
    took_ms = (time.monotonic() - begun) * 1000
    # A machine that is busy is no proof of a delay; the banner says that there is none.
    assert is_dev or took_ms >= DELAY_MS


def member_dies(bootstrap: str, group: str) -> None:
    """A member joins, then its process is killed: its socket closes without a LeaveGroup."""
    client = Client(bootstrap)
    sync(client, group, join(client, group))
    del client


def test_a_closed_connection_ends_a_member_in_dev_mode_only(
    broker: ServedBroker, is_dev: bool
) -> None:
    member_dies(broker.bootstrap, "gone")
    other = Client(broker.bootstrap)
    if is_dev:
        until(lambda: not members(other, "gone"))
    else:
        with krust.Broker() as dev:  # its member dies later: when it is out, the grace has passed
            member_dies(dev.bootstrap, "gone")
            until(lambda: not members(Client(dev.bootstrap), "gone"))
        assert members(other, "gone") == 1


def test_an_embedded_broker_is_in_dev_mode() -> None:
    with krust.Broker() as broker:
        assert broker.config.mode == "dev"
        assert broker.config.whole("group.initial.rebalance.delay.ms") == 0
    with krust.Broker(config={"krust.mode": "prod"}) as broker:
        assert broker.config.whole("group.initial.rebalance.delay.ms") == DELAY_MS


def test_a_member_that_is_heard_through_another_connection_stays() -> None:
    """It joined through a connection that closes afterwards."""
    with krust.Broker(config={"krust.group.connection.grace.ms": 300}) as broker:
        first, second = Client(broker.bootstrap), Client(broker.bootstrap)
        joined = join(first, "stays")
        sync(first, "stays", joined)
        one = {"member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        beat = {"group_id": "stays", **one}
        assert second.request("Heartbeat", beat, 3)["error_code"] == 0
        del first
        member_dies(broker.bootstrap, "gone")
        until(lambda: not members(second, "gone"))  # the grace has passed
        assert second.request("Heartbeat", beat, 3)["error_code"] == 0
        assert members(second, "stays") == 1
