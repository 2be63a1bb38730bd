"""Runs blocks of Python of documents, in a process of its own: `python run_blocks.py PLAN REPORT`.

PLAN is JSON: `folder`, `spark` (whether blocks find a session called `spark`, as in the pyspark
shell), `patience_s`, and `pages`, each a list of blocks {place, line, kind, code}. Blocks of a page
share their names, in order, and a working directory. A block of kind `tests` is run by pytest,
together with what earlier ones of its page define; one of kind `endless` ends when it has printed a
line; one of kind `sql` is parsed by Spark, one of kind `pipeline` has to pass its own check.

REPORT gets a line of JSON before and after each block: {place}, then {place, wrong, skipped}. One
session of Spark serves all; a block that stops it makes the next begin another in the same JVM.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from krust.cli import root
from krust.cli.options import Options

OPTIONAL = {"duckdb", "pandas", "polars", "pyarrow", "pyspark", "deltalake", "pyiceberg"}


class EnoughError(BaseException):
    """Raised when an endless block has printed a line."""


def session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def run(block: dict[str, Any], names: dict[str, Any], earlier: str) -> str:
    """Run a block in `names`; returns what is wrong, or nothing."""
    code, kind = block["code"], block["kind"]
    if kind == "tests":
        file = Path(f"test_block_{block['line']}.py").absolute()
        file.write_text(earlier + code)
        ended = pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={file.parent}", str(file)])
        return "" if ended == 0 else f"pytest ended with {ended!r}"
    if kind == "sql":
        session()._jsparkSession.sessionState().sqlParser().parsePlan(code.rstrip("; \n"))
        return ""
    if kind == "pipeline":
        file = Path("flights.toml")
        file.write_text(code)
        done = CliRunner().invoke(root, ["pipeline", "check", str(file)], obj=Options())
        return "" if done.exit_code == 0 else f"{done.output}{done.exception!r}"
    whole = compile("\n" * (block["line"] - 1) + code, block["place"].partition(":")[0], "exec")
    if kind != "endless":
        exec(whole, names)
        return ""

    def shown(*words: object, **how: Any) -> None:
        print(*words, **how)
        raise EnoughError

    try:
        exec(whole, {**names, "print": shown})
    except EnoughError:
        return ""
    return "it ended before it had printed a line"


def outcome(block: dict[str, Any], names: dict[str, Any], earlier: str) -> dict[str, str]:
    try:
        return {"wrong": run(block, names, earlier)}
    except ModuleNotFoundError as error:
        if error.name in OPTIONAL:
            return {"skipped": f"no {error.name} here"}
        return {"wrong": traceback.format_exc()}
    except BaseException:
        return {"wrong": traceback.format_exc()}


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    faulthandler.dump_traceback_later(plan["patience_s"], exit=True)
    with Path(sys.argv[2]).open("w", buffering=1) as report:
        for number, page in enumerate(plan["pages"]):
            folder = Path(plan["folder"]) / str(number)
            folder.mkdir()
            os.chdir(folder)
            names: dict[str, Any] = {"__name__": "__main__"}
            earlier = ""
            for block in page:
                report.write(json.dumps({"place": block["place"]}) + "\n")
                if plan["spark"]:
                    names["spark"] = session()
                found = {"place": block["place"], **outcome(block, names, earlier)}
                report.write(json.dumps(found) + "\n")
                if block["defines"]:
                    earlier += block["code"] + "\n\n"


if __name__ == "__main__":
    main()
