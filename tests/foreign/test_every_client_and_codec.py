"""Each client writes with each of its codecs; clients of every age read it back, byte for byte."""

from __future__ import annotations

import pytest

from tests.foreign.clients import CLIENTS, AioKafka, Child, Client, Confluent, KafkaPython, Record
from tests.foreign.conftest import create

TEXT: list[Record] = [(f"k{n}".encode(), f"value {n}".encode() * (n % 7 + 1)) for n in range(18)]
AWKWARD: list[Record] = [(b"\x00\xff\n", b"x" * 50_000), (b"", b"\x00" * 3)]
RECORDS: list[Record] = [*TEXT, *AWKWARD]
READERS: list[Client] = [
    Confluent(),
    AioKafka(),
    KafkaPython(),
    KafkaPython((0, 8, 2)),
    KafkaPython((0, 10, 1)),
    Child("kafka-python-1.4.7", "0.11", codecs=("none", "gzip", "snappy", "lz4")),
]


def here(client: Client) -> Client:
    reason = client.missing()
    if reason is not None:
        pytest.skip(reason)
    return client


@pytest.mark.parametrize(
    ("writer", "codec"),
    [(writer, codec) for writer in CLIENTS for codec in writer.codecs],
    ids=lambda value: str(value),
)
def test_what_one_client_writes_every_client_reads(
    bootstrap: str, topic: str, writer: Client, codec: str
) -> None:
    here(writer).write(bootstrap, topic, codec, RECORDS)
    for reader in READERS:
        if reader.reads(codec) and reader.missing() is None:
            assert reader.read(bootstrap, topic, len(RECORDS)) == RECORDS, reader


@pytest.fixture(scope="module")
def mixed(bootstrap: str) -> dict[bool, tuple[str, list[Record]]]:
    """Two topics with batches of every format and codec, lz4 in the second alone; their records."""
    old = KafkaPython((0, 8, 2)), KafkaPython((0, 10, 0))
    found: dict[bool, tuple[str, list[Record]]] = {}
    for has_lz4 in (False, True):
        topic = create(bootstrap)
        records: list[Record] = []
        for writer in (*old, KafkaPython(), Confluent(), Confluent(**{"enable.idempotence": True})):
            for codec in ("none", "gzip", "snappy", *(["lz4"] if has_lz4 else [])):
                some: list[Record] = [
                    (f"{writer} {codec} {key!r}".encode(), value) for key, value in TEXT
                ]
                writer.write(bootstrap, topic, codec, some)
                records += some
        found[has_lz4] = topic, records
    return found


@pytest.mark.parametrize("reader", CLIENTS, ids=lambda client: str(client))
def test_every_client_reads_old_and_new_batches_of_one_topic(
    bootstrap: str, mixed: dict[bool, tuple[str, list[Record]]], reader: Client
) -> None:
    topic, records = mixed["lz4" in here(reader).codecs]
    assert reader.read(bootstrap, topic, len(records)) == records


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: str(client))
def test_null_keys_and_values_stay_null(bootstrap: str, topic: str, client: Client) -> None:
    records: list[Record] = [(None, b"no key"), (b"tombstone", None), (b"k", b"last")]
    if client.name.endswith("-as-0.8.0"):
        records.pop(1)  # kafka-python refuses to send a tombstone to so old a broker
    here(client).write(bootstrap, topic, "none", records)
    assert client.read(bootstrap, topic, len(records)) == records
    assert Confluent().read(bootstrap, topic, len(records)) == records
