"""A disk of its own for each of three brokers, which the test fills or cuts the power of.

The power of several brokers goes at one moment: their processes are suspended first, so that none
of them answers anybody after its disk has gone. Then the disks lose what was not synced, the
processes are killed, and the disks are mounted again. A broker reads from `krust.boot.id.path`
that its machine has booted since.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.disks import MEMORY, Disk, fill
from tests.serving import ServedBroker
from tests.waiting import until

SIZE = "512M"


class Disks:
    """The disks of brokers 1 to 3, each mounted at the log directory of its broker."""

    def __init__(self, images: Path, logs: Path) -> None:
        self._images = images
        self._disks: dict[int, Disk] = {}
        for number in (1, 2, 3):
            folder = images / str(number)
            folder.mkdir()
            self._disks[number] = Disk("ext4", folder, SIZE, logs / str(number))
            (self._disks[number].place / "lost+found").rmdir()
            self._boots(number, 0)

    def settings(self, number: int) -> dict[str, object]:
        """What tells a broker of the power cuts of its machine."""
        return {"krust.boot.id.path": self._boot(number)}

    def cut(self, brokers: Mapping[int, ServedBroker]) -> None:
        """Cut the power of all these brokers at once, and mount their disks again."""
        for broker in brokers.values():
            broker.process.send_signal(signal.SIGSTOP)
        for broker in brokers.values():
            until(partial(_stands_still, broker.pid))
        for number in brokers:
            self._disks[number].cut()
        for number, broker in brokers.items():
            broker.kill()
            self._boots(number, int(self._boot(number).read_text()) + 1)
            self._disks[number].unmount()
            self._disks[number].mount()
            # A file whose removal was not synced is back.
            (self._disks[number].place / "filler").unlink(missing_ok=True)

    @contextmanager
    def full(self, number: int) -> Iterator[None]:
        """Fill the disk of a broker; it has room again afterwards."""
        filler = fill(self._disks[number].place)
        try:
            yield
        finally:
            filler.unlink(missing_ok=True)

    def remove(self) -> None:
        """Unmount and delete all of them."""
        for each in self._disks.values():
            each.remove()

    def _boot(self, number: int) -> Path:
        return self._images / str(number) / "boot-id"

    def _boots(self, number: int, count: int) -> None:
        self._boot(number).write_text(str(count))


def _stands_still(pid: int) -> bool:
    """Whether no thread of a suspended process can answer anybody.

    One that waits for a disk in the kernel (D) is suspended before it returns.
    """
    stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(each.rpartition(") ")[2][0] in "TD" for each in stats)


@contextmanager
def three_disks(logs: Path) -> Iterator[Disks]:
    """Disks at the log directories 1, 2 and 3 in a folder."""
    images = Path(tempfile.mkdtemp(prefix=f"krust-disks-{os.getpid()}-", dir=MEMORY))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, images)
        disks = Disks(images, logs)
        stack.callback(disks.remove)
        yield disks
