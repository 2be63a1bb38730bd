"""Writers' schemas from a registry (`schema.registry.url`) or a folder of `ID.avsc`.

The only module of `decode/` that uses the network or files. The schema of an id never changes, so
each is requested once and cached, at most KEPT of them. An id that does not exist is remembered for
MISSING_S, so that hostile ids cannot cause a request for each record.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from krust.decode.result import BadValueError
from krust.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEPT = 1000
MISSING_S = 30
TIMEOUT_S = 10
TRIES = 3
_LARGEST = 16 << 20


class Schemas:
    """A cache of schemas by id.

    read   returns the JSON of a schema; KeyError: it does not exist
    """

    def __init__(self, read: Callable[[int], Any]) -> None:
        self._read = read
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._missing: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def __getitem__(self, number: int) -> Any:
        """The schema. BadValueError: it does not exist. UnreachableError: no answer."""
        found = self._kept.get(number)
        if found is not None:
            return found
        until, reason = self._missing.get(number, (0.0, ""))
        if time.monotonic() < until:
            raise BadValueError(reason)
        try:
            found = self._read(number)
        except (KeyError, BadValueError) as error:
            known = str(error) if isinstance(error, BadValueError) else "there is none"
            reason = f"schema {number}: {known}"
            _keep(self._missing, number, (time.monotonic() + MISSING_S, reason))
            raise BadValueError(reason) from None
        _keep(self._kept, number, found)
        return found


def _keep(table: OrderedDict[int, Any], number: int, value: Any) -> None:
    table[number] = value
    while len(table) > KEPT:
        table.popitem(last=False)


def from_folder(folder: Path) -> Callable[[int], Any]:
    """Reads schemas from `ID.avsc` files. ConfigError: there is no such folder."""
    if not folder.is_dir():
        raise ConfigError(f"schema folder {str(folder)!r} does not exist")

    def read(number: int) -> Any:
        path = folder / f"{number}.avsc"
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise KeyError(number) from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error

    return read


class Registry:
    """The HTTP interface of a schema registry, as far as reading needs it."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"schema.registry.url: {url!r} is not an address", hint="http://localhost:8081"
            )
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username:
            name, word = map(urllib.parse.unquote, (parts.username, parts.password or ""))
            token = base64.b64encode(f"{name}:{word}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        place = parts.netloc.rpartition("@")[2]
        self._url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"

    def schema(self, number: int) -> Any:
        """The Avro schema of an id. KeyError: it does not exist."""
        return self._avro(self._ask(f"/schemas/ids/{number}"))

    def latest(self, subject: str) -> Any:
        """The newest Avro schema of a subject. KeyError: it does not exist."""
        quoted = urllib.parse.quote(subject, safe="")
        return self._avro(self._ask(f"/subjects/{quoted}/versions/latest"))

    def _avro(self, answer: Any) -> Any:
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise BadValueError(f"it is of type {kind}, not AVRO")
        if answer.get("references"):
            raise BadValueError("it refers to others, which is not supported")
        return json.loads(answer["schema"])

    def _ask(self, path: str) -> Any:
        last: Exception | None = None
        for attempt in range(TRIES):
            if attempt:
                time.sleep(0.2 * attempt)
            request = urllib.request.Request(self._url + path, headers=self._headers)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                    return json.loads(answer.read(_LARGEST))
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 404:
                    raise KeyError(path) from None
                last = error
                if error.code < 500:
                    break
            except (OSError, ValueError) as error:
                last = error
        raise UnreachableError(
            f"the schema registry {self._url} does not answer {path}: {last}",
            hint="is schema.registry.url right? curl " + self._url + "/subjects",
        )
