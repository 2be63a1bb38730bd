"""Files that have to lie in their last place before the commit that names them: Delta, Iceberg.

    <table>/_staging/<job>-<batch>-<12 hex>.publish     intent: which files are moved, and for which
                                                        publish id; gone when that is decided

A driver that dies between moving and committing leaves files that no commit names. Its intent
tells of them; they are removed once a commit of the same batch is in the table that is not the
intent's own. Not earlier: a driver that only seemed dead may still commit, and the table's own log
sees to it that only one commit of a batch can be made.
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
"""Under this name a commit keeps the id of its intent."""


class MovingTable(Table):
    """A table whose log names files by their last place."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where its files lie."""

    @abstractmethod
    def published(self, ids: set[str]) -> dict[str, bool | None]:
        """Whether commits with these publish ids are in the table; None: it cannot be known."""

    @abstractmethod
    def _logged(self, commit: Commit, files: Sequence[Path], metadata: dict[str, str]) -> bool:
        """Write the commit. False: a commit of that batch is there already."""

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
            with suppress(FileNotFoundError):  # another driver sweeps as well
                names: list[str] = json.loads(left[number].read_text())
                for name in () if known else names:
                    Path(name).unlink(missing_ok=True)
                left[number].unlink()
