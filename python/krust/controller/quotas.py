"""Quotas as numbers: whose they are, which one holds for a request, and a bucket to count in.

An owner is a tuple of (kind, name) in the order of KINDS; the name None: everybody of that kind who
has none of his own. `(("user", "alice"), ("client-id", None))` is every client of alice's.
What stands in the tree is text, in the nodes that `path` names; what of it is a quota, `read` says.
Pure: no clock, no store. Source: KIP-13, KIP-55, KIP-124, KIP-546, KIP-599, KIP-612.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from krust.metadata import znodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

USER, CLIENT, IP = "user", "client-id", "ip"
KINDS = {USER: "users", CLIENT: "clients", IP: "ips"}
"""What can have quotas, and the folder of it under /config."""

Owner = tuple[tuple[str, str | None], ...]
Table = dict[Owner, dict[str, float]]

MUTATIONS = "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
WHOLE = {"producer_byte_rate": "LONG", "consumer_byte_rate": "LONG", CONNECTIONS: "INT"}
"""Those that are whole numbers, and of which type of Java's."""
OF_CLIENTS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", MUTATIONS)
OF_IPS = (CONNECTIONS,)

_LONGEST_MS = 2**31 - 1
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\Z", re.ASCII)


def keys_of(owner: Owner) -> tuple[str, ...]:
    """The quotas that such an owner can have."""
    return OF_IPS if owner[0][0] == IP else OF_CLIENTS


def is_address(text: str) -> bool:
    """Whether a quota of connections can be for it: IPv4, in digits."""
    parts = text.split(".")
    digits = all(part.isascii() and part.isdecimal() and len(part) <= 3 for part in parts)
    return len(parts) == 4 and digits and max(map(int, parts)) < 256


def path(owner: Owner) -> str:
    """Where an owner's node is under /config: `users/carl%20x/clients/<default>`."""
    return "/".join(
        f"{KINDS[kind]}/{znodes.DEFAULT_ENTITY if name is None else znodes.sanitised(name)}"
        for kind, name in owner
    )


def owner_at(place: str) -> Owner | None:
    """Whose node that is; None: it is none of an owner's, or not named as Kafka names it."""
    parts = place.split("/")
    folders = {folder: kind for kind, folder in KINDS.items()}
    shapes = (["users"], ["clients"], ["ips"], ["users", "clients"])
    if len(parts) % 2 or parts[::2] not in shapes:
        return None
    owner = tuple(
        (folders[folder], None if part == znodes.DEFAULT_ENTITY else znodes.unsanitised(part))
        for folder, part in zip(parts[::2], parts[1::2], strict=True)
    )
    return owner if path(owner) == place else None


def read(owner: Owner, config: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """The quotas among an owner's settings; and what of them is no number that can hold."""
    values, faults = {}, []
    for key in keys_of(owner):
        text = config.get(key)
        if text is None:
            continue
        value = float(text) if _NUMBER.match(text) else math.nan
        if 0 <= value < math.inf:
            values[key] = value
        else:
            faults.append(f"{key} is {text[:40]!r}")
    return values, faults


def text_of(value: float) -> str:
    """A fraction as Java writes it, and so Kafka: 200.0, 1.5E-4, 1.0E10."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    exact = Decimal(repr(value))
    sign, digits, _ = exact.as_tuple()
    rest = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exact.adjusted()}"


class Held(NamedTuple):
    """A quota that holds for a request."""

    value: float
    shared_by: Owner
    """all requests of the same count together"""


def holding(table: Table, key: str, user: str, client_id: str) -> Held | None:
    """Which quota holds for a user's client; None: none does. The most special one wins."""
    for owner, shared_by in _precedence(user, client_id):
        value = table.get(owner, {}).get(key)
        if value is not None:
            return Held(value, shared_by)
    return None


def _precedence(user: str, client_id: str) -> Iterator[tuple[Owner, Owner]]:
    """Owners from the most special one to the most general, and who shares what each has.

    As Kafka's DefaultQuotaCallback: a default is for everybody, but each has it for himself. A
    client that does not name itself is nobody's but its user's.
    """
    one_user, one_client = (USER, user), (CLIENT, client_id)
    clients = (one_client, (CLIENT, None)) if client_id else ()
    for each_user in (one_user, (USER, None)):
        for each_client in clients:
            yield (each_user, each_client), (one_user, one_client)
        yield (each_user,), (one_user,)
    for each_client in clients:
        yield (each_client,), (one_client,)


class Bucket:
    """Tokens that come at a rate, up to what `burst_s` seconds bring; it begins full.

    Who finds it not below zero is let through whole, and may leave it below.
    """

    def __init__(self) -> None:
        self._level = math.inf
        self._at_ms = 0

    def level(self, rate: float, burst_s: float, now_ms: int) -> float:
        """How many tokens there are now."""
        passed_s = max(now_ms - self._at_ms, 0) / 1000
        self._level = min(self._level + rate * passed_s, rate * burst_s)
        self._at_ms = now_ms
        return self._level

    def take(self, count: float) -> None:
        """Take tokens, after a look at the time."""
        self._level -= count


def wait_ms(level: float, rate: float) -> int:
    """How long until a level below zero is zero again."""
    if level >= 0:
        return 0
    return _LONGEST_MS if rate * _LONGEST_MS < -level * 1000 else round(-level / rate * 1000)


class Buckets:
    """A bucket for each who shares a quota; a full one is the same as none, and may be dropped."""

    LIMIT = 10_000

    def __init__(self) -> None:
        self._kept: dict[Owner, Bucket] = {}

    def of(self, owner: Owner) -> Bucket:
        """Its bucket, now the one used last; the one not used for the longest may go for it."""
        bucket = self._kept.pop(owner, None) or Bucket()
        self._kept[owner] = bucket
        if len(self._kept) > self.LIMIT:
            del self._kept[next(iter(self._kept))]
        return bucket


def shown(table: Table) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """What of a table the core enforces, as the core takes it; the controller's own is left out."""
    found = []
    for owner, values in table.items():
        enforced = {key: value for key, value in values.items() if key != MUTATIONS}
        if enforced:
            found.append(({kind.replace("-", "_"): name for kind, name in owner}, enforced))
    return found
