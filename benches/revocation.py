"""How long a revoked ACL and a changed password still act, on each of three brokers.

    PYTHONPATH=. python benches/revocation.py [--times 100]

Three krusts of this interpreter share a ZooKeeper. One after the other is told to delete the ACL
that lets alice describe a topic, or to give her another password (SCRAM-SHA-512). Timed is, for
each broker, from the moment before that request to the first refusal there: of a request on a
connection that is open, or of a login with the old password. The clients ask every 2 ms. A
refused login waits for `connection.failed.authentication.delay.ms` (100), which is part of the
time.

Wanted is at most 1 s everywhere. It is no test: it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from krust import Admin, jaas
from krust.controller import scram
from krust.errors import Code, KafkaError
from tests.acl_matrix.connection import Connection
from tests.peers import zookeeper
from tests.ports import free_ports
from tests.serving import ServedBroker
from tests.waiting import WAIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BROKERS = 3
EVERY_S = 0.002
LIMIT_MS = 1000
PASSWORD = "secret"
TOPIC, LITERAL, DESCRIBE, ALLOW = 2, 3, 8, 3
ACL = {"principal": "User:alice", "host": "*", "operation": DESCRIBE, "permission_type": ALLOW}
SCRAM = "SCRAM-SHA-512"


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The brokers: where they serve everybody, and where users log in."""
    with ExitStack() as stack:
        connect = stack.enter_context(zookeeper.running(folder)).connect
        places = {}
        for node, port in enumerate(free_ports(BROKERS), 1):
            options: dict[str, object] = {
                "listeners": f"PLAINTEXT://127.0.0.1:0,LOGINS://127.0.0.1:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
                "listener.name.logins.plain.sasl.jaas.config": f"{jaas.PLAIN} required "
                f'user_admin="{PASSWORD}" user_alice="{PASSWORD}";',
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:admin;User:ANONYMOUS",
                "zookeeper.connect": connect,
                "broker.id": node,
                "offsets.topic.replication.factor": 1,
            }
            data = folder / f"broker-{node}"
            broker = stack.enter_context(ServedBroker(data, port=None, options=options))
            places[broker.bootstrap] = f"127.0.0.1:{port}"
        open_to_all = Admin({"bootstrap.servers": next(iter(places))})
        until(lambda: len(open_to_all.request("Metadata", {})["brokers"]) == BROKERS)
        open_to_all.create_topic("t", partitions=1, replication_factor=BROKERS)
        yield places


def describes(connection: Connection) -> bool:
    """Whether a user sees the topic."""
    [topic] = connection.ask("Metadata", 1, {"topics": [{"name": "t"}]})["topics"]
    return int(topic["error_code"]) != Code.TOPIC_AUTHORIZATION_FAILED


def change_acl(admin: Connection, *, allow: bool) -> None:
    """Let alice see the topic, or no longer."""
    if allow:
        row = {"resource_type": TOPIC, "resource_name": "t", "resource_pattern_type": LITERAL}
        told = admin.ask("CreateAcls", 3, {"creations": [{**row, **ACL}]})["results"]
    else:
        row = {"resource_type_filter": TOPIC, "resource_name_filter": "t"}
        row |= {"pattern_type_filter": LITERAL, "operation": DESCRIBE, "permission_type": ALLOW}
        told = admin.ask("DeleteAcls", 3, {"filters": [row]})["filter_results"]
    assert [each["error_code"] for each in told] == [0], told


def change_password(admin: Admin, password: str) -> None:
    """Give alice another password."""
    row = scram.upsertion("alice", SCRAM, password, os.urandom(25))
    told = admin.request("AlterUserScramCredentials", {"deletions": [], "upsertions": [row]})
    assert [each["error_code"] for each in told["results"]] == [0], told


def logs_in(place: str, password: str) -> bool:
    """Whether alice can log in."""
    login = {"sasl.mechanism": SCRAM, "sasl.username": "alice", "sasl.password": password}
    client = {"bootstrap.servers": place, "security.protocol": "SASL_PLAINTEXT", **login}
    try:
        Admin(client).topics()
    except KafkaError as refused:
        if refused.code != Code.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    return True


def until_refused(change: Callable[[], None], allowed: list[Callable[[], bool]]) -> list[float]:
    """Milliseconds from a change until each of these is no longer allowed."""
    ended_s = [0.0] * len(allowed)

    def wait(number: int) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while allowed[number]():
            assert time.monotonic() < deadline_s
            time.sleep(EVERY_S)
        ended_s[number] = time.monotonic()

    threads = [Thread(target=wait, args=(number,)) for number in range(len(allowed))]
    begun_s = time.monotonic()
    change()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [1e3 * (each - begun_s) for each in ended_s]


def acls(places: dict[str, str], times: int) -> list[float]:
    """Milliseconds that a revoked ACL still acted, on each broker each time."""
    found = []
    with ExitStack() as stack:
        admins, alices = (
            [stack.enter_context(Connection(each, user, PASSWORD)) for each in places.values()]
            for user in ("admin", "alice")
        )
        asks = [lambda alice=alice: describes(alice) for alice in alices]
        for number in range(times):
            admin = admins[number % BROKERS]
            change_acl(admin, allow=True)
            until(lambda: all(ask() for ask in asks))
            found += until_refused(lambda at=admin: change_acl(at, allow=False), asks)
    return found


def passwords(places: dict[str, str], times: int) -> list[float]:
    """Milliseconds that an old password still acted, on each broker each time."""
    found = []
    users = [Admin({"bootstrap.servers": each}) for each in places]
    change_password(users[0], "password-0")
    for number in range(times):
        old, new = f"password-{number}", f"password-{number + 1}"
        asks = [lambda at=place, old=old: logs_in(at, old) for place in places.values()]
        until(lambda asks=asks: all(ask() for ask in asks))
        change = users[number % BROKERS]
        found += until_refused(lambda to=change, new=new: change_password(to, new), asks)
    return found


def main() -> None:
    """Measure both, and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as places:
        for what, measure in (("a revoked ACL", acls), ("an old password", passwords)):
            found = sorted(measure(places, wanted.times))
            late = f"{sum(each > LIMIT_MS for each in found)} above {LIMIT_MS} ms"
            print(
                f"{what} acts for {statistics.median(found):.0f} ms (median), "
                f"{found[len(found) * 99 // 100]:.0f} (99th percentile), {found[-1]:.0f} (longest) "
                f"of {len(found)}; {late}; load {os.getloadavg()[0]:.1f}"
            )


if __name__ == "__main__":
    main()
