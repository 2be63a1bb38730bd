"""Quotas at the native boundary: what `apply` accepts, and the error for what it refuses."""

from typing import Any

import pytest

from krust._krust import Server

RATES = {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048, "request_percentage": 12.5}


def test_a_table_of_every_kind_of_entity_is_taken(server: Server) -> None:
    rows: list[tuple[dict[str, Any], dict[str, float]]] = [
        ({"user": "ann", "client_id": "app"}, RATES),
        ({"user": "ann", "client_id": None}, RATES),
        ({"user": None}, {"request_percentage": 50.0}),
        ({"client_id": None}, {}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 10}),
        ({"ip": None}, {"connection_creation_rate": 1.0}),
    ]
    assert server.apply({"version": 1, "quotas": rows}) == []
    assert server.apply({"version": 2, "quotas": []}) == []
    assert server.apply({"version": 3}) == []


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        (({"group": "g"}, {}), ValueError, 'there is no "group"'),
        (({"user": 7}, {}), TypeError, "user"),
        (({"user": "ann"}, {"byte_rate": 1.0}), ValueError, 'there is no "byte_rate"'),
        (({"user": "ann"}, {"producer_byte_rate": "1"}), TypeError, "producer_byte_rate"),
        ({"user": "ann"}, TypeError, "quotas"),
    ],
)
def test_an_invalid_quota_row_is_refused_by_name(
    server: Server, row: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        server.apply({"version": 1, "quotas": [row]})
