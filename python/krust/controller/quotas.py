"""Quotas as numbers: their owners, the quota that applies to a request, and token buckets.

An owner is a tuple of (kind, name) in the order of KINDS. The name None means everybody of that
kind without an own quota: `(("user", "alice"), ("client-id", None))` is every client of alice's.
The tree holds quotas as text in the nodes that `path` names; `read` makes numbers of them.
Pure: no clock, no store. Source: KIP-13, KIP-55, KIP-124, KIP-546, KIP-599, KIP-612.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from krust.metadata import znodes
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

USER, CLIENT, IP = "user", "client-id", "ip"
KINDS = {USER: "users", CLIENT: "clients", IP: "ips"}
"""What can have quotas, and the folder of it under /config."""

QuotaOwner = tuple[tuple[str, str | None], ...]
QuotaTable = dict[QuotaOwner, dict[str, float]]

CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
INTEGER_QUOTAS = {"producer_byte_rate": "LONG", "consumer_byte_rate": "LONG", CONNECTIONS: "INT"}
"""Those that are whole numbers, and of which type of Java's."""
OF_CLIENTS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    CONTROLLER_MUTATION_RATE,
)
OF_IPS = (CONNECTIONS,)

_LONGEST_MS = 2**31 - 1
_NUMBER = r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\Z"


def keys_of(owner: QuotaOwner) -> tuple[str, ...]:
    """The quotas that such an owner can have."""
    return OF_IPS if owner[0][0] == IP else OF_CLIENTS


def is_address(text: str) -> bool:
    """Whether the text is an address that can have a connection quota: IPv4, in digits."""
    parts = text.split(".")
    digits = all(part.isascii() and part.isdecimal() and len(part) <= 3 for part in parts)
    return len(parts) == 4 and digits and max(map(int, parts)) < 256


def path(owner: QuotaOwner) -> str:
    """Where an owner's node is under /config: `users/carl%20x/clients/<default>`."""
    return "/".join(
        f"{KINDS[kind]}/{znodes.DEFAULT_ENTITY if name is None else znodes.sanitised(name)}"
        for kind, name in owner
    )


def owner_at(entity_path: str) -> QuotaOwner | None:
    """The owner of a node; None: it is no owner's, or is not named as Kafka names it."""
    parts = entity_path.split("/")
    folders = {folder: kind for kind, folder in KINDS.items()}
    shapes = (["users"], ["clients"], ["ips"], ["users", "clients"])
    if len(parts) % 2 or parts[::2] not in shapes:
        return None
    owner = tuple(
        (folders[folder], None if part == znodes.DEFAULT_ENTITY else znodes.unsanitised(part))
        for folder, part in zip(parts[::2], parts[1::2], strict=True)
    )
    return owner if path(owner) == entity_path else None


def read(owner: QuotaOwner, config: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """The quotas among an owner's settings, and the names of those that are no valid number."""
    values, faults = {}, []
    for key in keys_of(owner):
        text = config.get(key)
        if text is None:
            continue
        value = float(text) if re.match(_NUMBER, text, re.ASCII) else math.nan
        if 0 <= value < math.inf:
            values[key] = value
        else:
            faults.append(f"{key} is {text[:40]!r}")
    return values, faults


def text_of(value: float) -> str:
    """A fraction as Java and Kafka write it: 200.0, 1.5E-4, 1.0E10."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    exact = Decimal(repr(value))
    sign, digits, _ = exact.as_tuple()
    rest = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exact.adjusted()}"


class SharedQuota(NamedTuple):
    """The quota that applies to a request, and the clients that share it."""

    value: float
    shared_by: QuotaOwner
    """all requests of the same count together"""


def quota_for(table: QuotaTable, key: str, user: str, client_id: str) -> SharedQuota | None:
    """The quota that applies to a user's client, the most specific one; None: there is none."""
    for owner, shared_by in _precedence(user, client_id):
        value = table.get(owner, {}).get(key)
        if value is not None:
            return SharedQuota(value, shared_by)
    return None


def _precedence(user: str, client_id: str) -> Iterator[tuple[QuotaOwner, QuotaOwner]]:
    """Owners from the most specific to the most general, each with the clients that share it.

    As in Kafka's DefaultQuotaCallback: a default quota is for everybody, but not shared. A client
    without a client id only has the quotas of its user.
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
    """A token bucket: it fills at a rate, up to the tokens of `burst_s` seconds, and begins full.

    A request passes whole if the level is zero or more, and may take it below zero.
    """

    def __init__(self) -> None:
        self._level = math.inf
        self._at_ms = 0

    def level(self, rate: float, burst_s: float, now_ms: int) -> float:
        """The number of tokens now."""
        passed_s = max(now_ms - self._at_ms, 0) / 1000
        self._level = min(self._level + rate * passed_s, rate * burst_s)
        self._at_ms = now_ms
        return self._level

    def take(self, count: float) -> None:
        """Take tokens; call `level` first."""
        self._level -= count


def wait_ms(level: float, rate: float) -> int:
    """How long until a level below zero is zero again."""
    if level >= 0:
        return 0
    return _LONGEST_MS if rate * _LONGEST_MS < -level * 1000 else round(-level / rate * 1000)


class Buckets:
    """The buckets of all quotas in use. A full bucket may be dropped: it equals a new one."""

    LIMIT = 10_000

    def __init__(self) -> None:
        self._kept: dict[QuotaOwner, Bucket] = {}

    def of(self, owner: QuotaOwner) -> Bucket:
        """The owner's bucket. A new bucket may replace the one that was used least recently."""
        bucket = self._kept.pop(owner, None) or Bucket()
        self._kept[owner] = bucket
        if len(self._kept) > self.LIMIT:
            del self._kept[next(iter(self._kept))]
        return bucket


def enforced_by_core(table: QuotaTable) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """The quotas that the core enforces, in its form, without `controller_mutation_rate`."""
    found = []
    for owner, values in table.items():
        enforced = {key: value for key, value in values.items() if key != CONTROLLER_MUTATION_RATE}
        if enforced:
            found.append(({kind.replace("-", "_"): name for kind, name in owner}, enforced))
    return found
