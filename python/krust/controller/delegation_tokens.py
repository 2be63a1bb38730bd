"""Delegation tokens (KIP-48, KIP-373): what a token is, who may change it, and its nodes.

/delegation_token/tokens/ID   a token: whose it is, and its times
/delegation_token/token_changes/token_change_N   names a token that changed: its id as text

Nodes are bytes as Kafka 3.9.1 writes them; versions 1 and 2, which have no requester, are read too.
A token's HMAC, by which clients log in and renew it, is in no node: it is HMAC-SHA512 of the id
with `delegation.token.secret.key`, so all brokers with that key accept each other's tokens.
Bytes may come from anyone: BadZnodeError says what is wrong with them.
Pure: no clock, no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.metadata.json_fields import BadZnodeError, encode, parse
from krust.metadata.store import is_path
from krust.metadata.znodes import sanitised, unsanitised
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from krust.listeners import SettingLookup

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE = f"{CHANGES}/token_change_"
PERSISTENT = ("/delegation_token", CHANGES, TOKENS)
"""The nodes that a broker with the key creates at its start, parents first."""

KEY = "delegation.token.secret.key"
_OLD_KEY = "delegation.token.master.key"
USER_TYPE = "User"
"""The only type of principals that log in."""
_LAST_MS = 2**63 - 1
_VERSION = 3
_SHOWN = 100
_JAVAS_SPACE = "".join(map(chr, range(ord(" ") + 1)))


class Principal(NamedTuple):
    """Who owns, asks for or renews a token."""

    type: str
    name: str

    @property
    def text(self) -> str:
        """As ACLs and nodes name it."""
        return f"{self.type}:{self.name}"

    @property
    def shown(self) -> str:
        """As a log line shows it."""
        return repr(self.text[:_SHOWN])


class DelegationToken(NamedTuple):
    """A token without its HMAC. Times are in milliseconds since 1970."""

    id: str
    owner: Principal
    """as whom its bearers log in"""
    requester: Principal
    """who made it"""
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    """after which nobody can renew it"""
    expires_ms: int

    def may_be_changed_by(self, who: Principal) -> bool:
        """Whether somebody may renew it, have it expire, and see it without an ACL."""
        return who == self.owner or who in self.renewers

    def is_expired(self, now_ms: int) -> bool:
        """Whether nobody logs in by it any more."""
        return min(self.max_ms, self.expires_ms) < now_ms

    def until(self, now_ms: int, period_ms: int) -> DelegationToken:
        """The token with another time to expire, within its longest life."""
        return self._replace(expires_ms=min(self.max_ms, now_ms + period_ms))

    def encode(self) -> bytes:
        """The bytes of its node. The order of keys is that of a hash table of Scala's."""
        fields = {
            "issueTimestamp": self.issued_ms,
            "renewers": [sanitised(each.text) for each in self.renewers],
            "tokenRequester": sanitised(self.requester.text),
            "tokenId": self.id,
            "owner": sanitised(self.owner.text),
            "expiryTimestamp": self.expires_ms,
            "maxTimestamp": self.max_ms,
            "version": _VERSION,
        }
        return encode(fields)

    @staticmethod
    def decode(token_id: str, data: bytes) -> DelegationToken:
        """The token in a node. BadZnodeError: the bytes are invalid."""
        fields = parse(data)
        version = _whole(fields, "version")
        if not 1 <= version <= _VERSION:
            raise BadZnodeError(f"its version is {version}, known are 1 to {_VERSION}")
        renewers = fields.get("renewers")
        if not isinstance(renewers, list):
            raise BadZnodeError("renewers is no list")
        owner = _principal(fields.get("owner"))
        requester = owner if version < _VERSION else _principal(fields.get("tokenRequester"))
        if fields.get("tokenId") != token_id:
            raise BadZnodeError("it is another token's")
        return DelegationToken(
            token_id,
            owner,
            requester,
            tuple(map(_principal, renewers)),
            _whole(fields, "issueTimestamp"),
            _whole(fields, "maxTimestamp"),
            _whole(fields, "expiryTimestamp"),
        )


class TokenLimits(NamedTuple):
    """How long tokens last (`delegation.token.max.lifetime.ms`, `.expiry.time.ms`)."""

    max_ms: int
    period_ms: int
    """until a token expires that nobody renews"""


class DelegationTokens:
    """The tokens that this broker knows, with their HMACs, which are not shown."""

    def __init__(self, text: SettingLookup) -> None:
        """Without a key in the settings there are no tokens."""
        self._key = _key(text)
        self._tokens: dict[str, tuple[DelegationToken, bytes]] = {}
        self._ids: dict[bytes, str] = {}

    def __repr__(self) -> str:
        return f"DelegationTokens({len(self._tokens)})"

    def __iter__(self) -> Iterator[DelegationToken]:
        return (token for token, _ in list(self._tokens.values()))

    @property
    def is_enabled(self) -> bool:
        """Whether this broker has a key."""
        return bool(self._key)

    def get(self, token_id: str) -> DelegationToken | None:
        """A token; None: there is none with this id."""
        found = self._tokens.get(token_id)
        return found[0] if found is not None else None

    def by_hmac(self, given: bytes) -> DelegationToken | None:
        """The token with this HMAC."""
        return self.get(self._ids.get(given, ""))

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token: it lets in whoever has it."""
        import hmac

        return hmac.digest(self._key, token_id.encode(), "sha512")

    def set(self, token_id: str, token: DelegationToken | None) -> bool:
        """Add, replace or remove (None) a token. False: nothing changed."""
        if self.get(token_id) == token:
            return False
        if token is None:
            self._ids.pop(self._tokens.pop(token_id)[1])
        else:
            secret = self.hmac_of(token_id)
            self._tokens[token_id] = token, secret
            self._ids[secret] = token_id
        return True

    def rows(self, ids: Iterable[str]) -> list[tuple[str, tuple[str, bytes, int] | None]]:
        """Tokens as the core takes them: by id the owner's name, the HMAC and the time to expire;
        None: nobody logs in by it.
        """
        rows: list[tuple[str, tuple[str, bytes, int] | None]] = []
        for token_id in ids:
            token, secret = self._tokens.get(token_id, (None, b""))
            if token is None or token.owner.type != USER_TYPE:
                rows.append((token_id, None))
            else:
                ends_ms = min(token.expires_ms, token.max_ms)
                rows.append((token_id, (token.owner.name, secret, ends_ms)))
        return rows


def path(token_id: str) -> str:
    """The node of a token."""
    return f"{TOKENS}/{token_id}"


def is_id(text: str) -> bool:
    """Whether a token can have this id: its node can have the name."""
    return bool(text) and "/" not in text and is_path(path(text))


def made(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Iterable[Principal],
    times: tuple[TokenLimits, int, int],
) -> DelegationToken:
    """A new token.

    times  the limits, how long it may last (0 or less: as long as possible), and the time now
    """
    limits, wanted_ms, now_ms = times
    lasts_ms = min(wanted_ms, limits.max_ms) if wanted_ms > 0 else limits.max_ms
    max_ms = min(now_ms + lasts_ms, _LAST_MS)
    expires_ms = min(max_ms, now_ms + limits.period_ms)
    return DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, max_ms, expires_ms)


def decode_change(data: bytes) -> str:
    """The id of the token that has changed. BadZnodeError: it is none."""
    try:
        token_id = data.decode()
    except ValueError as error:
        raise BadZnodeError(f"it is no text: {error}") from None
    if not is_id(token_id):
        raise BadZnodeError(f"it names no token: {data[:100]!r}")
    return token_id


def _key(text: SettingLookup) -> bytes:
    """The key, under its new name or its old one, without the space that Kafka cuts off too."""
    return (text(KEY) or text(_OLD_KEY) or "").strip(_JAVAS_SPACE).encode()


def _principal(text: object) -> Principal:
    if not isinstance(text, str):
        raise BadZnodeError("a principal is no text")
    kind, colon, name = unsanitised(text).partition(":")
    if not (kind and colon):
        raise BadZnodeError(f"{text[:100]!r} is no principal")
    return Principal(kind, name)


def _whole(fields: dict[str, Any], name: str) -> int:
    found = fields.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) > _LAST_MS:
        raise BadZnodeError(f"{name} is no 64-bit number")
    return found
