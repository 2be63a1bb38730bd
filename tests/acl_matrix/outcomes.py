"""What an answer says of each item of a row: an authorization error, operations, or neither.

29, 30, 31, 53, 58, 65   Kafka's code of the error
0                        it is named without such an error
UNNAMED                  it is not named
CLOSED                   the broker closed the connection instead of an answer
"""

from __future__ import annotations

from collections import defaultdict

from tests.acl_matrix.codec import Body
from tests.acl_matrix.connection import Closed, Connection
from tests.acl_matrix.rows import UNNAMED, Names, Row

CLOSED = -99
REFUSALS = {29, 30, 31, 53, 58, 65}
NAMING = (
    *("name", "topic", "topic_name", "group_id", "key", "transactional_id"),
    *("user", "resource_name"),
)


def asked(connection: Connection, row: Row, version: int, names: Names) -> dict[str, int]:
    """The outcome of each item, as a broker answers."""
    try:
        answer = connection.ask(row.api, version, row.body(names))
    except Closed:
        return dict.fromkeys(row.checks, CLOSED)
    found = _codes(answer, names)
    return {item: _outcome(item, found, names) for item in row.checks}


def _outcome(item: str, found: dict[str, list[int]], names: Names) -> int:
    attribute, _, part = item.partition(" ")
    name = getattr(names, attribute) if attribute else ""
    if part:
        return found.get(f"{name} {part}", [0])[0]
    everything = [code for codes in found.values() for code in codes]
    codes = found[name] if name in found and name else everything
    refused = set(codes) & REFUSALS
    assert len(refused) <= 1, (item, found)
    return refused.pop() if refused else UNNAMED if name and name not in found else 0


def _codes(answer: Body, names: Names) -> dict[str, list[int]]:
    """Error codes by the name of what they are about, "" the whole; operations by "NAME bits"."""
    found: dict[str, list[int]] = defaultdict(list)
    by_id = {number: name for name, number in names.ids.items()}
    _collect(answer, "", by_id, found)
    return found


def _collect(body: Body, name: str, by_id: dict[bytes, str], found: dict[str, list[int]]) -> None:
    own = [body[word] for word in NAMING if isinstance(body.get(word), str)]
    if not own and body.get("topic_id") in by_id:
        own = [by_id[body["topic_id"]]]
    if own:
        name = own[0]
        found[name] += []
    for word, value in body.items():
        if word.endswith("authorized_operations"):
            found[f"{name} bits"].append(value)
        elif word == "topic_config_error_code":
            found[f"{name} configs"].append(value)
        elif word.endswith("error_code"):
            found[name].append(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    _collect(each, name, by_id, found)
