"""`krust group simulate` and `krust group assignors` need no broker, and blame the right one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MINE = """
class First:
    name = "first"
    def assign(self, group, topics):
        one, spec = min(group.members.items())
        return {one: [(t, n) for t in spec.topics for n in range(topics.partitions(t))]}
class Raises(First):
    def assign(self, group, topics):
        return {}[len(group.members)]
class Lies(First):
    def assign(self, group, topics):
        return {member: [("a", 0)] for member in group.members}
class Hangs(First):
    def assign(self, group, topics):
        import threading
        threading.Event().wait()
class Forgets(First):
    def assign(self, group, topics):
        return {min(group.members): [("a", 0)]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def group(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; del sys.path[0]; from krust.cli import main; main(['group', *sys.argv[1:]])"
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False, cwd=folder
    )


def rows(folder: Path, *args: str) -> list[dict[str, Any]]:
    run = group(folder, "simulate", *args, "--json")
    assert run.returncode == 0, run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


def test_moved_partitions_are_counted(folder: Path) -> None:
    args = ("--assignor", "sticky", "--members", "5", "--topics", "a:12,b:8")
    found = rows(folder, *args, "--steps", "-1,+1,a:22")
    assert [row["step"] for row in found] == ["start", "-1", "+1", "a:22"]
    assert [(row["least"], row["most"]) for row in found] == [(4, 4), (5, 5), (4, 4), (6, 6)]
    assert [(row["moved"], row["orphaned"]) for row in found] == [(0, 0), (0, 4), (4, 0), (0, 0)]
    assert sum(len(n) for of in found[0]["assignment"].values() for n in of.values()) == 20


def test_racks_weights_and_lag_are_simulated(folder: Path) -> None:
    near = rows(folder, "--assignor", "rack_aware", "--racks", "x,y,z", "--steps", "")
    assert near[0]["local"] == 12
    shares = rows(folder, "--assignor", "weighted", "--weights", "1,2,3", "--steps", "")
    assert (shares[0]["least"], shares[0]["most"]) == (2, 6)
    one, two = (rows(folder, "--assignor", "lag_aware", "--lag", "7") for _ in range(2))
    assert one[-1]["most_lag"] == two[-1]["most_lag"], "the same seed"


def test_a_custom_assignor_is_found_in_the_working_directory(folder: Path) -> None:
    [row] = rows(folder, "--assignor", "mine:First", "--members", "3", "--steps", "")
    assert (row["least"], row["most"]) == (0, 12)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--assignor", "stiky"), 2, "did you mean sticky?"),
        (("--assignor", "yours:First"), 2, "there is no module 'yours'"),
        (("--assignor", "mine:Frst"), 2, "it has First, Raises, Lies, Hangs, Forgets"),
        (("--assignor", "mine:Raises"), 1, "return {}[len(group.members)]"),
        (("--assignor", "mine:Lies"), 9, "a:0 goes to 'm1' and 'm2'"),
        (("--assignor", "mine:Hangs", "--deadline", "20ms"), 9, "no answer within 20 ms"),
        (("--assignor", "range", "--topics", "a"), 2, "'a' is not TOPIC:PARTITIONS"),
        (("--assignor", "range", "--topics", "a:999999999"), 2, "200,000 partitions in all"),
        (("--assignor", "range", "--steps", "-3"), 2, "leaves 0 members"),
        (("--assignor", "weighted", "--weights", "x"), 2, "numbers, such as 1,1,3"),
    ],
)
def test_errors_of_assignors_have_a_cause_and_an_exit_code(
    folder: Path, args: tuple[str, ...], code: int, message: str
) -> None:
    run = group(folder, "simulate", *args)
    assert (run.returncode, run.stdout) == (code, "")
    assert message in run.stderr


def test_unassigned_partitions_have_an_exit_code(folder: Path) -> None:
    run = group(folder, "simulate", "--assignor", "mine:Forgets", "--json")
    assert run.returncode == 9
    assert "leaves 11 partitions unassigned at step start" in run.stderr
    assert json.loads(run.stdout)[0]["unassigned"] == 11


def test_built_in_assignors_are_listed(folder: Path) -> None:
    run = group(folder, "assignors", "--json")
    names = {row["name"] for row in json.loads(run.stdout) if row["source"] == "built in"}
    assert names >= {"range", "roundrobin", "sticky", "uniform", "weighted", "rack_aware"}


def test_the_documented_assignor_works_and_has_20_lines(folder: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/assignors.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 20
    (folder / "tenants.py").write_text(code)
    args = ("--topics", "m1.a:6,b:9", "--members", "3", "--steps", "")
    [row] = rows(folder, "--assignor", "tenants:Tenants", *args)
    assert row["assignment"]["m1"]["m1.a"] == list(range(6))
    assert row["unassigned"] == 0
