"""The table of controller APIs beside the schemas and what each row promises."""

from krust.controller.apis import CONTROLLER_APIS
from tests.typed_messages import SCHEMAS

OF_THE_CORE = {"AutoCreate", "LogDirFailed"}
"""requests that the core itself makes: Kafka has no such API"""


def test_every_controller_api_is_kafkas_or_the_cores_own() -> None:
    heads = (
        next(line for line in path.read_text().splitlines() if line.startswith("api "))
        for path in SCHEMAS.glob("*.txt")
    )
    kafkas = {head.split()[2] for head in heads}
    assert CONTROLLER_APIS.keys() - OF_THE_CORE <= kafkas


def test_only_the_controller_decides_what_brokers_forward() -> None:
    assert all(row.by_controller for row in CONTROLLER_APIS.values() if row.is_forwarded)
