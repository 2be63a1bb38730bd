"""Quotas through `krust quotas`, on krust and on Kafka alike."""

from __future__ import annotations

from typing import Any

import pytest

from krust._krust import Client
from tests.three_brokers import Command
from tests.waiting import until

OTHERS = dict.fromkeys(("controller_mutation_rate", "connection_creation_rate"))
ANN = {"user": "ann b", "client": "<default>", "ip": None, **OTHERS}


def test_quotas_are_set_listed_and_deleted(krust: Command) -> None:
    whose = ("--user", "ann b", "--default-client")
    krust.ok("quotas", "set", "producer_byte_rate=1048576", "request_percentage=12.5", *whose)
    krust.ok("quotas", "set", "connection_creation_rate=5", "--ip", "10.0.0.1")
    until(lambda: "10.0.0.1" in krust.ok("quotas", "list").text)
    assert "1,048,576" in krust.ok("quotas", "list").text
    found = krust.ok("quotas", "list", "--user", "ann b", "--json").json()
    both = {"producer_byte_rate": 1048576, "request_percentage": 12.5}
    assert found == [{**ANN, "consumer_byte_rate": None, **both}]
    nobody = krust("quotas", "delete", "--user", "ann b")
    assert (nobody.code, nobody.err.splitlines()[0]) == (5, "error: user ann b has no quotas")
    krust.ok("quotas", "delete", "request_percentage", *whose)
    krust.ok("quotas", "delete", "--ip", "10.0.0.1")
    until(lambda: "10.0.0.1" not in krust.ok("quotas", "list").text)
    found = krust.ok("quotas", "list", "--output", "ndjson").lines()
    assert [row["producer_byte_rate"] for row in found] == [1048576]
    krust.ok("quotas", "delete", *whose)
    until(lambda: krust.ok("quotas", "list", "--json").json() == [])


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_of_the_quota_requests_is_answered(krust: Command, version: int) -> None:
    client = Client(krust.bootstrap)
    entity = [{"entity_type": "client-id", "entity_name": f"v{version}"}]
    op = {"key": "producer_byte_rate", "value": 8.0, "remove": False}
    asked = {"entries": [{"entity": entity, "ops": [op]}], "validate_only": False}
    (entry,) = client.request("AlterClientQuotas", asked, version)["entries"]
    assert (entry["error_code"], entry["entity"]) == (0, entity)
    one = {"entity_type": "client-id", "match_type": 0, "match": f"v{version}"}
    wanted = {"components": [one], "strict": True}

    def shown() -> Any:
        return client.request("DescribeClientQuotas", wanted, version)["entries"]

    values = [{"key": "producer_byte_rate", "value": 8.0}]
    until(lambda: shown() == [{"entity": entity, "values": values}])
    op["remove"] = True
    client.request("AlterClientQuotas", asked, version)
    until(lambda: shown() == [])


@pytest.mark.parametrize(
    ("words", "exit_code", "text"),
    [
        (("nonsense=1", "--user", "ann"), 1, "Invalid configuration key nonsense"),
        (("producer_byte_rate=1",), 2, "--user, --client, --ip"),
        (("producer_byte_rate=much", "--user", "ann"), 2, "'much' is not a number"),
        (("producer_byte_rate=1", "--user", "ann", "--default-user"), 2, "not both"),
    ],
)
def test_an_invalid_quota_is_an_error(
    krust: Command, words: tuple[str, ...], exit_code: int, text: str
) -> None:
    done = krust("quotas", "set", *words)
    assert done.code == exit_code
    assert text in done.err
