"""Files that only their owner reads: mode 0600, in a folder of mode 0700, replaced as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def private_folder(folder: Path) -> None:
    """Make the folder, or close one that others may read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_private(path: Path, content: bytes) -> None:
    """Write a file. It has the old content or the new one, and never a wider mode."""
    draft = path.with_name(f"{path.name}.tmp")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    draft.replace(path)
