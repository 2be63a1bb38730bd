"""Every code block of every document runs, or is checked as far as possible.

Python runs: plain blocks in one process, Spark's in another with one session. `localhost:9092` in a
block becomes a broker of this process, and `/var/lib/krust` its directory. Pipeline files are
checked as `krust pipeline check` does. The real parser parses command lines, also those in
sentences. New pages are included automatically.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import krust
from krust.cli import root
from krust.cli.exits import Exit
from krust.settings import BROKER, TOPIC
from tests import documents, named_tests
from tests.documents import PYTHON, Block
from tests.spark.conftest import environment, settings
from tests.test_layers import PYTHON_LAYERS, RUST_LAYERS

ROOT = Path(__file__).parents[1]
BLOCKS = documents.all_blocks()
ENDLESS = re.compile(r"^ *(?:async )?for \w+ in (?:consumer|stream|records)\b", re.MULTILINE)
USES_SPARK = re.compile(r"\bspark\b")
PATIENCE_S = 120
SPARK_PATIENCE_S = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[krust.Broker]:
    with krust.Broker() as broker:
        broker.create_topic("orders", partitions=4)
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.produce("orders", b"first")
        yield broker


def here(text: str, broker: krust.Broker, folder: Path) -> str:
    """A block with this test's addresses and folders instead of the document's."""
    text = text.replace("localhost:9092", broker.bootstrap)
    return text.replace("/var/lib/krust", str(broker.data_dir)).replace("/lake", f"{folder}/lake")


def kind(block: Block) -> str:
    if block.language in ("sql", "toml"):
        return {"sql": "sql", "toml": "pipeline"}[block.language]
    if re.search(r"^(?:async )?def test_", block.code, re.MULTILINE):
        return "tests"
    return "endless" if ENDLESS.search(block.code) else "plain"


def run(blocks: list[Block], broker: krust.Broker, folder: Path, *, spark: bool) -> list[str]:
    """Run blocks in a process of their own; the test fails with what is wrong, and where.

    Blocks that need a missing package are reported with the reason.
    """
    pages: dict[str, list[dict[str, object]]] = {}
    for each in blocks:
        entry = {
            "place": each.place,
            "line": each.line,
            "kind": kind(each),
            "code": here(each.code, broker, folder),
            "defines": bool(re.search(r"^class ", each.code, re.MULTILINE)),
        }
        pages.setdefault(each.page, []).append(entry)
    patience_s = SPARK_PATIENCE_S if spark else PATIENCE_S
    plan, report = folder / "plan.json", folder / "report"
    common = {"folder": str(folder), "spark": spark, "patience_s": patience_s}
    plan.write_text(json.dumps({**common, "pages": list(pages.values())}))
    ended = subprocess.run(
        [sys.executable, str(ROOT / "tests/run_blocks.py"), str(plan), str(report)],
        env=with_spark(folder) if spark else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    outcomes = {line["place"]: line for line in lines if len(line) > 1}
    wrong = [f"{place}: {each['wrong']}" for place, each in outcomes.items() if each.get("wrong")]
    wrong += [f"{each.place}: it did not end" for each in blocks if each.place not in outcomes]
    if wrong:
        pytest.fail("\n".join([*wrong, ended.stdout[-4000:]]), pytrace=False)
    return [f"{place}: {each['skipped']}" for place, each in outcomes.items() if "skipped" in each]


def with_spark(folder: Path) -> dict[str, str]:
    """The environment for Spark sessions of tests: loopback only, and quick."""
    conf = {**settings(folder, []), "spark.log.level": "ERROR"}
    arguments = " ".join(f"--conf '{name}={value}'" for name, value in conf.items())
    return environment() | {"PYSPARK_SUBMIT_ARGS": f"{arguments} pyspark-shell"}


def runnable(blocks: list[Block], *, spark: bool) -> list[Block]:
    """The blocks that run: Spark's or the others."""

    def wants_spark(block: Block) -> bool | None:
        if block.language in PYTHON:
            return bool(USES_SPARK.search(block.code))
        return block.language == "sql" or documents.is_pipeline(block) or None

    return [each for each in blocks if not each.reason and wants_spark(each) is spark]


def test_every_page_has_blocks_of_the_expected_kinds() -> None:
    assert {"README.md", "docs/assignors.md", "docs/spark.md"} <= {each.page for each in BLOCKS}
    assert len(runnable(BLOCKS, spark=False)) > 5
    assert len(runnable(BLOCKS, spark=True)) > 3


@pytest.mark.parametrize("path", documents.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_and_setting_that_a_page_shows_is_valid(path: Path) -> None:
    page = str(path.relative_to(ROOT))
    wrong = [
        f"{b.place}: {each}" for b in BLOCKS if b.page == page for each in documents.problems(b)
    ]
    for place, words in documents.mentions(path.read_text(), page):
        wrong += [f"{place}: {words}: {each}" for each in documents.of_mention(words)]
    assert not wrong, "\n".join(wrong)


def test_every_block_that_does_not_run_gives_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    marked = [each for each in BLOCKS if each.reason]
    with capsys.disabled():
        for each in marked:
            print(f"\n{each.place} does not run: {each.reason}", end="")
    assert all(len(each.reason) > 10 for each in marked)


@pytest.mark.timeout(PATIENCE_S + 20)
def test_each_block_of_python_runs(
    broker: krust.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_out = run(runnable(BLOCKS, spark=False), broker, tmp_path, spark=False)
    with capsys.disabled():
        print("".join(f"\n{each}" for each in left_out), end="")


@pytest.mark.spark
@pytest.mark.timeout(SPARK_PATIENCE_S + 20)
def test_each_block_of_spark_runs(broker: krust.Broker, tmp_path: Path) -> None:
    for module in ("pyspark", "pyarrow", "deltalake", "pyiceberg"):
        pytest.importorskip(module, reason=f"no {module} here: pip install '.[spark,tables]'")
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    blocks = runnable(BLOCKS, spark=True)
    for each in filter(documents.is_pipeline, blocks):
        source = tomllib.loads(each.code)["source"]
        for topic in [*source.get("topics", []), *filter(None, [source.get("topic")])]:
            if topic not in broker.topics():
                broker.create_topic(topic)
    assert not run(blocks, broker, tmp_path, spark=True)


WRONG = [
    ("py", "spark.read\n    .load()\n", "unexpected indent"),
    ("py", "from krust import Brokr\n", "no Brokr"),
    ("py", "from krust.clints import x\n", "no module krust.clints"),
    ("console", "hello\n", "no command"),
    ("console", "$ echo 'a\n", "unexpected EOF"),
    ("console", "$ echo a | krust prodce orders\n", "prodce"),
    ("sh", "krust topic list --sizes\n", "--sizes"),
    ("sh", "FOO=1 krust consume orders \\\n  -n many 2>&1 > out\n", "many"),
    ("sh", "make srve\n", "srve"),
    ("sh", "pip install 'krust[cluster]'\n", "another package"),
    ("sh", "pip install '.[clustr]'\n", "no extra clustr"),
    ("sh", "python examples/nothing.py\n", "no examples/nothing.py"),
    ("toml", "[sink\n", "line 1"),
    ("toml", '[source]\ntopic = "a"\n[sink]\ndelta = "a"\nparquet = "b"\n', "one is wanted"),
    ("toml", '"num.partitons" = 3\n', "num.partitons"),
    ("toml", '[project.entry-points."krust.asignors"]\na = "b:C"\n', "krust.asignors"),
    ("properties", "num.partitons=3\n", "num.partitons"),
    ("json", "{'a': 1}\n", "double quotes"),
    ("ruby", "puts 1\n", "ruby"),
    ("", "what is it\n", "none of"),
]


@pytest.mark.parametrize(("language", "code", "word"), WRONG)
def test_a_wrong_block_is_found(language: str, code: str, word: str) -> None:
    [block] = documents.blocks(f"text\n```{language}\n{code}```\n", "page.md")
    assert block.place == "page.md:3"
    assert any(word in each for each in documents.problems(block)), documents.problems(block)


def test_a_mark_with_its_reason_belongs_to_the_next_block_alone() -> None:
    text = "<!-- not run: it needs a moon -->\n```py\na\n```\n- one\n  ```py\n  b\n  ```\n"
    found = documents.blocks(text, "page.md")
    assert [(each.reason, each.code) for each in found] == [("it needs a moon", "a\n"), ("", "b\n")]


def test_a_block_that_fails_or_does_not_end_is_reported_with_its_place(
    broker: krust.Broker, tmp_path: Path
) -> None:
    text = "```py\na = 1\n```\n```py\nb = a\nb.c\n```\n```py\nimport os\nos._exit(0)\n```\n"
    with pytest.raises(pytest.fail.Exception) as raised:
        run(documents.blocks(text, "page.md"), broker, tmp_path, spark=False)
    message = str(raised.value)
    assert "page.md:2" not in message
    assert 'File "page.md", line 6' in message
    assert "page.md:9: it did not end" in message


def test_everything_that_the_page_of_threats_names_exists() -> None:
    text = (ROOT / "docs/threats.md").read_text()
    names = re.findall(r"`([a-z][a-z0-9_./]*[a-z0-9])`", text)
    files = {name for name in names if "/" in name}
    settings = {name for name in names if "." in name} - files
    assert len(files) > 10
    assert len(settings) > 10
    assert not [name for name in sorted(files) if not (ROOT / name).is_file()]
    known = BROKER.keys() | TOPIC.keys()
    assert settings <= known, settings - known
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    limits = [row for row in rows if row[1].strip() != "what"]
    assert not [row[1] for row in limits if "`" not in row[4]], "a limit without a test"


def test_the_security_record_names_a_test_for_each_id() -> None:
    rows = named_tests.rows((ROOT / "docs/security-record.md").read_text())
    ids = [row.id for row in rows]
    assert len(ids) >= 27
    assert [each for each in ids if not re.fullmatch(r"CVE-20\d\d-\d{4,}", each)] == []
    assert len(set(ids)) == len(ids)
    assert [wrong for row in rows for wrong in named_tests.missing(row.tests)] == []
    bare = [row.id for row in rows if not named_tests.NAME.search(row.tests)]
    assert bare == [], "a row without a test"
    of_tests = named_tests.ids_of_tests()
    assert len(of_tests) > 10
    assert {each: of_tests[each] for each in of_tests.keys() - set(ids)} == {}, "no row has them"


def test_a_test_that_does_not_exist_is_found() -> None:
    here = "`tests/test_documents.py::test_a_test_that_does_not_exist_is_found`"
    rust = "`rust/src/wire.rs::varints_round_trip` `rust/src/wire.rs::raw`"
    lost = "`tests/test_nothing.py::test_x` `tests/documents.py::pages` `rust/tests/net/no.rs::x`"
    assert list(named_tests.missing(f"{here} {rust} {lost}")) == [
        "rust/src/wire.rs has no test raw",
        "there is no tests/test_nothing.py",
        "tests/documents.py has no test pages",
        "there is no rust/tests/net/no.rs",
    ]


def test_the_page_of_the_command_line_names_every_command_and_exit_code() -> None:
    page = (ROOT / "docs/cli.md").read_text()

    def names(command: click.Command, path: str) -> Iterator[str]:
        if not isinstance(command, click.Group):
            yield path
            return
        with click.Context(command) as context:
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from names(below, f"{path} {name}")

    assert [each for each in names(root, "krust") if not re.search(rf"{each}\b", page)] == []
    codes = {
        int(each) for each in re.findall(r"\d+", page[page.index("| code |") :].split("\n\n")[0])
    }
    assert codes == {code.value for code in Exit}


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {each.name for each in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {each for each in pages if f"({each})" not in index} == set()


FOLDERS = ("", "rust/src", "rust", "python/krust", "docs")
_PATH = re.compile(r"(?:\w+/)+(?:[\w-]+(?:\.\w+)?)?|\w+\.(?:rs|py|pyi|md)")


def missing_paths(text: str) -> list[str]:
    """The paths in a page that are in none of FOLDERS; a znode's path begins with a slash."""
    spans = [each for each in re.findall(r"`([^`\n]+)`", text) if _PATH.fullmatch(each)]
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    return [
        each
        for each in [*spans, *links]
        if not any((ROOT / folder / each).exists() for folder in FOLDERS)
    ]


def test_every_path_that_the_architecture_page_names_exists() -> None:
    assert missing_paths((ROOT / "docs/ARCHITECTURE.md").read_text()) == []


def test_the_architecture_page_shows_the_layers_that_are_checked() -> None:
    page = (ROOT / "docs/ARCHITECTURE.md").read_text()
    rust, _, python = page.partition("## 2.")[0].partition("| layer | Python")
    for text, layers in ((rust, RUST_LAYERS), (python, PYTHON_LAYERS)):
        rows = re.findall(r"^\| (\d) \| ([^|]+) \|", text, re.MULTILINE)
        shown = {
            name: int(layer)
            for layer, names in rows
            for name in re.findall(r"`(\w+)(?:/|\.py|\.rs)`", names)
        }
        assert len(shown) > 10
        assert shown == {name: layers[name] for name in shown}


def test_every_program_that_the_page_of_proofs_names_exists() -> None:
    text = (ROOT / "docs/PROOFS.md").read_text()
    paths = re.findall(r"\b(?:tests|benches|rust|examples|docs)/[\w./]+", text)
    assert [each for each in paths if not (ROOT / each).exists()] == []
    assert missing_paths(text) == []


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`storage/no_log.rs` `storage/` `nobody.py` `/brokers/ids` [page](nothing.md)"
    assert missing_paths(text) == ["storage/no_log.rs", "nobody.py", "nothing.md"]


def test_the_architecture_page_has_at_most_4000_words() -> None:
    assert len((ROOT / "docs/ARCHITECTURE.md").read_text().split()) <= 4000
