"""A file system of its own on a loop image in memory, which a test fills or cuts the power of.

EXT4_IOC_SHUTDOWN (XFS has the same number) drops whatever was not synced: appends are gone, a file
that was not synced is empty or has no name, later writes get EIO. Mounted again, the file system
has what a machine would find on its disk after a power failure.
Needs root, loop devices and /dev/shm; `missing` says why there is no such disk here.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from tests.waiting import WAIT_S

MEMORY = Path("/dev/shm")
SHUTDOWN = 0x8004587D  # _IOR('X', 125, u32)
WITHOUT_LOG_FLUSH = 2
SIZES = {"ext4": "96M", "xfs": "320M"}


class RefusedError(AssertionError):
    """The machine does not do that."""


@functools.cache
def missing(kind: str) -> str | None:
    """Why there is no disk whose power can be cut; None: there is."""
    if not MEMORY.is_dir() or os.geteuid() != 0:
        return "only root may mount, and images want /dev/shm"
    folder = Path(tempfile.mkdtemp(prefix="krust-probe-", dir=MEMORY))
    try:
        disk = Disk(kind, folder)
        try:
            disk.cut()
        finally:
            disk.unmount()
    except RefusedError as error:
        return str(error)
    finally:
        shutil.rmtree(folder)
    return None


class Disk:
    """A file system in an image, which can lose its power.

    folder   for the image
    size     of the file system
    place    where it is mounted; a folder beside the image
    """

    def __init__(
        self, kind: str, folder: Path, size: str | None = None, place: Path | None = None
    ) -> None:
        self.image, self.place = folder / "image", place or folder / "disk"
        self.place.mkdir()
        maker = shutil.which(f"mkfs.{kind}")
        if maker is None:
            raise RefusedError(f"there is no mkfs.{kind} here")
        _run("truncate", "-s", size or SIZES[kind], str(self.image))
        _run(maker, "-q", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount the file system as a start of the machine would."""
        _run("mount", "-o", "loop", str(self.image), str(self.place))

    def cut(self) -> None:
        """Take the power away."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        except OSError as error:
            raise RefusedError(f"this file system cannot be shut down: {error}") from error
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Unmount the file system."""
        subprocess.run(["umount", str(self.place)], check=True, timeout=WAIT_S)

    def remove(self) -> None:
        """Unmount the file system, even if it is in use, and delete its image."""
        subprocess.run(["umount", "--lazy", str(self.place)], check=False, capture_output=True)
        shutil.rmtree(self.image.parent)


def fill(place: Path) -> Path:
    """Fill the rest of the disk; returns the file that does so."""
    filler = place / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(descriptor, b"\x00" * 65536):
            pass
    os.close(descriptor)
    return filler


def _run(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RefusedError(f"{command[0]} is refused here: {run.stderr.strip()}")
