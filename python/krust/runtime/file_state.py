"""What tells a file from the one that replaces it."""

from __future__ import annotations

from pathlib import Path

FileState = tuple[int, int, int]


def file_state(path: str | Path) -> FileState | None:
    """Time of change, inode and size of a file; None: there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size)
