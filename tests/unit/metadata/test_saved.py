"""The metadata on disk is there twice: what one file loses the other has, and nothing is lost in
silence."""

from __future__ import annotations

import itertools
import logging
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest

from krust.errors import ServerError
from krust.metadata import database, journal, saved
from krust.metadata.local import Tree
from krust.metadata.rows import Row
from krust.metadata.saved import TreeFile, TreeFiles, choose, verify
from krust.metadata.store import Create, Delete, MultiResult, Operation, SetData, Store

PLACES = int(os.environ.get("KRUST_CORRUPTIONS", "50"))
"""in each file of each image where one bit is flipped"""
FILES = ("meta.db", "meta.db-wal", "meta.journal")
CONFIG = b'{"version":1,"config":{"retention.ms":"86400000"}}'


def run(store: Store, *operations: Operation) -> MultiResult:
    store.submit(operations, None)
    (done,) = (event for event in store.events() if isinstance(event, MultiResult))
    assert done.refused is None
    return done


def write(folder: Path, name: str = "meta.db") -> Tree:
    """A tree with a history: topics made, settings changed, a quota, a topic deleted."""
    tree = Tree(folder / name)
    store = tree.session()
    run(store, Create("/topics"), Create("/config"))
    for number in range(12):
        run(store, Create(f"/topics/t{number}", CONFIG), Create(f"/config/t{number}", CONFIG))
    run(store, SetData("/config/t3", CONFIG.replace(b"86400000", b"-1")))
    run(store, Delete("/topics/t7"), Delete("/config/t7"))
    run(store, Create("/config/clients", b'{"producer_byte_rate":"1024"}'))
    return tree


def contents(tree: Tree) -> dict[str, Row]:
    return {row.path: row for row in tree._rows()}


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at through the system, which needs no disk for that."""
    connect = database._connect

    def unsynced(path: Path) -> sqlite3.Connection:
        file = connect(path)
        file.execute("PRAGMA synchronous = OFF")
        return file

    monkeypatch.setattr(database, "_connect", unsynced)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(journal, "_sync", lambda handle: None)


def opened(folder: Path, **how: object) -> dict[str, Row]:
    """What a start finds."""
    plain = TreeFiles(folder / "meta.db", (folder / "meta.journal",))
    tree = Tree(plain._replace(**how))  # type: ignore[arg-type]
    try:
        return contents(tree)
    finally:
        tree.close()


def copied(image: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(image, folder)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Row], Path, Path]:
    """What was acknowledged, and the files after kill -9 and after a clean stop."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "live").mkdir()
    tree = write(folder / "live")
    killed = folder / "killed"
    killed.mkdir()
    for name in FILES:
        shutil.copy(folder / "live" / name, killed / name)
    wanted = contents(tree)
    tree.close()
    return wanted, killed, folder / "live"


def refusal(folder: Path) -> ServerError | None:
    """Why a start is refused."""
    try:
        opened(folder)
    except ServerError as error:
        return error
    return None


Images = tuple[dict[str, Row], Path, Path]


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("which", [0, 1], ids=["killed", "clean"])
@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_anywhere_loses_no_metadata(
    images: Images, tmp_path: Path, name: str, which: int
) -> None:
    wanted, *both = images
    image = both[which]
    if not (image / name).exists():
        return  # a clean stop leaves no write-ahead file
    chance = random.Random(f"{name} {which}")
    size = (image / name).stat().st_size
    edges = [*range(0, 32, 3), *range(size - 24, size, 7)]
    for at in [*edges, *(chance.randrange(size) for _ in range(PLACES))]:
        folder = copied(image, tmp_path / "flipped")
        flip(folder / name, at, chance.randrange(8))
        assert opened(folder, known="it was served") == wanted, at
        assert opened(folder, known="it was served") == wanted, f"{at}, the second time"


LOSSES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(missing_ok=True),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(random.Random(1).randbytes(9000)),
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("which", [0, 1], ids=["killed", "clean"])
def test_one_file_that_is_lost_comes_back_from_the_other(
    images: Images, tmp_path: Path, loss: str, name: str, which: int
) -> None:
    wanted, *both = images
    image = both[which]
    if not (image / name).exists():
        return
    folder = copied(image, tmp_path / "lost")
    LOSSES[loss](folder / name)
    assert opened(folder) == wanted
    if name == "meta.journal":
        for each in folder.glob("meta.db*"):
            each.unlink()
        assert opened(folder) == wanted, "the second copy was created again"


def test_a_recovery_is_logged_with_the_damage(
    images: Images, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(images[2], tmp_path / "x")
    flip(folder / "meta.db", (folder / "meta.db").read_bytes().index(b"86400000"), 0)
    with caplog.at_level(logging.WARNING):
        opened(folder)
    (line,) = caplog.messages
    assert "recovered the metadata (change 16," in line
    assert "meta.journal" in line
    assert "meta.db: it is damaged: its checksum" in line
    assert (folder / "meta.db.damaged").exists()


def test_damage_in_both_files_is_refused_with_a_hint(images: Images, tmp_path: Path) -> None:
    wanted, image = images[0], images[2]
    chance = random.Random(3)
    found = [re.finditer(b"86400000", (image / name).read_bytes()) for name in FILES[::2]]
    places = list(itertools.product(*([each.start() for each in some] for some in found)))
    for where in chance.sample(places, 40):
        folder = copied(image, tmp_path / "both")
        for name, at in zip(FILES[::2], where, strict=True):
            flip(folder / name, at, chance.randrange(8))
        refused = refusal(folder)
        assert refused is not None
        assert "is not whole" in str(refused)
        assert "meta.db: it" in str(refused)
        assert "behind byte" in str(refused)
        assert "--adopt" in str(refused.hint)
        assert "backup" in str(refused.hint)
        left = opened(folder, adopt=True)
        older = [row.mzxid <= wanted[path].mzxid for path, row in left.items() if path in wanted]
        assert all(older)
        assert opened(folder) == left


def test_a_known_directory_is_not_initialised_again(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"not whole \(it was served\): all of it is missing"):
        opened(tmp_path, known="it was served")
    assert opened(tmp_path, known="it was served", adopt=True).keys() == {"/"}


def test_a_start_that_was_killed_at_once_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "meta.db").write_bytes(b"")
    assert opened(tmp_path).keys() == {"/"}


def test_a_change_that_reached_one_file_alone_is_kept(images: Images, tmp_path: Path) -> None:
    folder = copied(images[2], tmp_path / "ahead")
    older = (folder / "meta.journal").read_bytes()
    tree = Tree(folder / "meta.db")
    run(tree.session(), Create("/late"))
    wanted = contents(tree)
    tree.close()
    (folder / "meta.journal").write_bytes(older)  # killed between the two
    assert opened(folder) == wanted
    (folder / "meta.db").unlink()
    assert opened(folder) == wanted


def test_a_second_log_directory_has_a_copy_as_well(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    both = TreeFiles(first / "meta.db", (first / "meta.journal", second / "meta.journal"))
    tree = Tree(both)
    run(tree.session(), Create("/a", b"1"))
    wanted = contents(tree)
    tree.close()
    shutil.rmtree(first)  # the first disk is gone: the second directory is the first now
    assert opened(second) == wanted
    first.mkdir()
    copies = (first / "meta.journal", second / "meta.journal")
    assert opened(second, path=first / "meta.db", copies=copies) == wanted


def test_a_copy_of_an_earlier_order_of_the_directories_is_read_and_removed(tmp_path: Path) -> None:
    write(tmp_path).close()
    wanted = opened(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    moved = (tmp_path / "meta.journal").rename(other / "meta.journal")
    (tmp_path / "meta.db").unlink()
    assert opened(tmp_path, others=(moved,)) == wanted
    assert not moved.exists()


def test_a_copy_that_cannot_be_written_is_removed_and_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tree = write(tmp_path)
    real = os.write

    def full(handle: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        run(tree.session(), Create("/while-full"))
    assert "cannot be written, and is removed until it can" in caplog.text
    assert not (tmp_path / "meta.journal").exists()
    assert os.write is real
    run(tree.session(), Create("/after"))
    wanted = contents(tree)
    tree.close()
    (tmp_path / "meta.db").unlink()
    assert opened(tmp_path) == wanted


def test_a_long_history_is_compacted_into_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_ROLL", 2000)
    monkeypatch.setattr(journal, "_FULL", 700)
    tree = write(tmp_path)
    store = tree.session()
    largest = 0
    for number in range(100):
        run(store, SetData("/config/t1", b"%d" % number * 100))
        largest = max(largest, (tmp_path / "meta.journal").stat().st_size)
    assert largest < 20_000
    run(store, *(Create(f"/topics/more-{number}", CONFIG) for number in range(50)))
    wanted = contents(tree)
    tree.close()
    (tmp_path / "meta.db").unlink()
    assert opened(tmp_path) == wanted


def test_a_truncated_change_in_the_copy_is_ignored(tmp_path: Path) -> None:
    write(tmp_path).close()
    before = opened(tmp_path)
    whole = (tmp_path / "meta.journal").read_bytes()
    tree = Tree(tmp_path / "meta.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_FULL", 200)
        run(tree.session(), *(Create(f"/topics/n{number}", CONFIG) for number in range(4)))
    tree.close()
    longer = (tmp_path / "meta.journal").read_bytes()
    (tmp_path / "meta.db").unlink()
    for size in range(len(whole) + 1, len(longer), 37):
        (tmp_path / "meta.journal").write_bytes(longer[:size])
        with pytest.raises(ServerError, match="is not whole"):
            opened(tmp_path)
        found = journal.read(tmp_path / "meta.journal")
        assert journal.nodes(tmp_path / "meta.journal", found.end) == before


def test_a_file_of_format_1_is_read_and_rewritten_as_format_2(tmp_path: Path) -> None:
    write(tmp_path).close()
    wanted = opened(tmp_path)
    (tmp_path / "meta.journal").unlink()
    with closing(sqlite3.connect(tmp_path / "meta.db")) as file, file:
        file.execute("DELETE FROM meta WHERE name IN ('total', 'seal')")
        file.execute("UPDATE meta SET value = 1 WHERE name = 'format'")
    assert opened(tmp_path) == wanted
    assert opened(tmp_path) == wanted
    assert verify(tmp_path / "meta.db") == []


def test_verify_finds_each_damage_and_writes_nothing(images: Images, tmp_path: Path) -> None:
    for image in images[1:]:
        folder = copied(image, tmp_path / "verified")
        assert verify(folder / "meta.db") == []
        for name in filter(lambda name: (image / name).exists(), FILES):
            folder = copied(image, tmp_path / "verified")
            flip(folder / name, 100 if name.endswith("wal") else 700, 3)
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            if name != "meta.db":
                assert verify(folder / "meta.db") != []
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "meta.journal").write_bytes(b"x" * 100)
    assert "100 bytes behind byte 0 are damaged" in str(verify(folder / "meta.db"))
    assert verify(tmp_path / "nothing.db") == []


ROWS = [None, 3, 4]


def sources(*zxids: int | None) -> Iterable[TreeFile]:
    for number, zxid in enumerate(zxids):
        yield TreeFile(str(number), zxid, 0, zxid or 0, None if zxid else "bad")


@pytest.mark.parametrize("zxids", list(itertools.product(ROWS, ROWS)))
def test_the_newest_whole_file_is_chosen(zxids: tuple[int | None, int | None]) -> None:
    choice = choose(list(sources(*zxids)), None)
    if zxids == (None, None):
        assert choice.doubt == "nothing of it can be read"
        return
    assert choice.doubt is None
    assert zxids[choice.source_index] == max(each or 0 for each in zxids)
    assert choice.source_index == 0 or zxids[0] != zxids[1]


def test_a_file_with_a_newer_or_different_change_is_not_trusted() -> None:
    old = TreeFile("db", 3, 7, 3)
    assert choose([old, TreeFile("copy", 2, 0, 4, "bad")], None).doubt is not None
    assert choose([old, TreeFile("copy", 2, 0, 3, "bad")], None).doubt is None
    assert choose([TreeFile("db", None, fault="bad"), TreeFile("copy", 2, 0, 2, "bad")], None).doubt
    assert "differ" in str(choose([old, TreeFile("copy", 3, 8, 3)], None).doubt)
    assert saved.tree_files(Path("/x/krust-metadata.db")).copies == (
        Path("/x/krust-metadata.journal"),
    )
