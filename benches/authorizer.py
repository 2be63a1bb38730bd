"""What ACLs cost Produce: krust with an authorizer and 10,000 ACLs beside krust without.

    python benches/authorizer.py [--rounds 9]

Both are the krust of this interpreter, a release build, and take turns; the load is that of the
`driver` program (see `peers.py`, whose rules hold here): one record a request, so that checks weigh
most, and batches. It is no test: it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from peers import Bench, Running, Scenario, Target, krust, pin, show

from krust.cli.serve import configure
from krust.controller.acls import ALLOW, LITERAL, OPERATIONS, PREFIXED, RESOURCE_TYPES
from krust.runtime import offline_acls

if TYPE_CHECKING:
    from collections.abc import Iterator

ACLS = 10_000
AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
MOST = Target("cpu_us_request", "open", 1.03)
SCENARIOS = (
    Scenario(
        "one record a request, 32 in flight",
        ("produce-small", "--in-flight", "32", "--requests", "60000"),
        shows=("requests_s", "cpu_us_request"),
        targets=(MOST,),
    ),
    Scenario(
        "batches of 100 B records, acks 1",
        ("produce", "--record-bytes", "100", "--acks", "1"),
        targets=(Target("cpu_s_gb", "open", 1.03),),
    ),
)


def bindings() -> list[dict[str, object]]:
    """ACLs of 100 users, by name and by prefixes of 20 lengths, and those that the driver needs."""
    made: list[dict[str, object]] = []
    for number in range(ACLS):
        user, topic = number % 100, number // 100
        prefix = f"team-{topic}-{'x' * (topic // 2 % 20)}"
        made.append(
            _allow(f"User:user-{user}", "Write", prefix, PREFIXED if topic % 2 else LITERAL)
        )
    made += [_allow("User:ANONYMOUS", each, "bench-", PREFIXED) for each in ("Write", "Delete")]
    made.append(_allow("User:ANONYMOUS", "Create", "bench-", PREFIXED))
    return made


def _allow(principal: str, operation: str, topic: str, pattern: int) -> dict[str, object]:
    return {
        "resource_type": RESOURCE_TYPES["Topic"],
        "resource_name": topic,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": "*",
        "operation": OPERATIONS[operation],
        "permission_type": ALLOW,
    }


@contextlib.contextmanager
def with_acls(folder: Path) -> Iterator[Running]:
    """A krust that obeys the ACLs."""
    data = folder / "data"
    data.mkdir()
    with offline_acls.opened(configure(data_dir=str(data))) as acls:
        answer = acls.request("CreateAcls", {"creations": bindings()})
    refused = [each for each in answer["results"] if each["error_code"]]
    if refused:
        raise RuntimeError(f"ACLs were refused: {refused[0]}")
    with krust(folder, AUTHORIZER) as running:
        yield running


def main() -> None:
    """Run both scenarios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        bench = Bench(Path(folder), given.rounds)
        for name, server in (("open", krust), ("krust", with_acls)):
            place = Path(folder) / name
            place.mkdir()
            bench.servers[name] = stack.enter_context(server(place))
            pin(bench.servers[name].pid, 0)
        for scenario in SCENARIOS:
            print(show(scenario, bench.run(scenario)), flush=True)
        print(figures.load())


if __name__ == "__main__":
    main()
