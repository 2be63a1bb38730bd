"""Tables whose files have to be in their final place before the commit: Delta, Iceberg.

    <table>/_staging/<job>-<batch>-<12 hex>.publish     intent: which files are moved, and for which
                                                        publish id; gone when that is decided

A driver that dies between the move and the commit leaves files that no commit names. Its intent
lists them. They are removed once the table has another commit of the same batch, and not earlier,
because a driver that only seemed dead may still commit. The table's log allows only one commit of a
batch.
"""

from __future__ import annotations

import json
import re
import secrets
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from krust.spark.table import Commit, Table, sync_folder, write_once

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTENT = re.compile(r"(?P<job>.+)-(?P<batch>\d{12})-(?P<id>[0-9a-f]{12})\.publish")
PUBLISH = "krust.publish"
"""The key of the intent's id in a commit."""


class MovingTable(Table):
    """A table whose log names files by their final place."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of its files."""

    @abstractmethod
    def published(self, ids: set[str]) -> dict[str, bool | None]:
        """Publish id -> whether its commit is in the table; None: not known."""

    @abstractmethod
    def _logged(self, commit: Commit, files: Sequence[Path], metadata: dict[str, str]) -> bool:
        """Write the commit. False: the table has a commit of that batch."""

    def _commit(self, commit: Commit) -> bool:
        number = secrets.token_hex(6)
        intent = self.staging / f"{commit.job}-{commit.batch:012d}-{number}.publish"
        staged = [Path(row["path"]) for row in commit.files]
        places = [self.folder / path.name for path in staged]
        write_once(intent, json.dumps([str(place) for place in places]))
        self.folder.mkdir(parents=True, exist_ok=True)
        for path, place in zip(staged, places, strict=True):
            path.rename(place)
        sync_folder(self.folder)
        done = self._logged(commit, places, commit.metadata() | {PUBLISH: number})
        if done:
            intent.unlink(missing_ok=True)
        return done

    def _swept(self, job: str, batch: int) -> None:
        super()._swept(job, batch)
        left: dict[str, Path] = {}
        for path in self.staging.glob("*.publish"):
            found = _INTENT.fullmatch(path.name)
            if found and found["job"] == job and int(found["batch"]) <= batch:
                left[found["id"]] = path
        if not left:
            return
        for number, known in self.published(set(left)).items():
            if known is None:
                continue
            with suppress(FileNotFoundError):  # another driver may have removed it
                names: list[str] = json.loads(left[number].read_text())
                for name in () if known else names:
                    Path(name).unlink(missing_ok=True)
                left[number].unlink()
