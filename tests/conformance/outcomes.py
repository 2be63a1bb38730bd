"""The results of a suite, read from its runner's reports."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def from_junit(report: Path) -> dict[str, bool]:
    """pytest's xunit1 report as `{file::class::test: passed}`; skipped tests are left out."""
    outcomes: dict[str, bool] = {}
    for case in ET.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        file = case.get("file", "")
        inside = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", "."))
        name = "::".join([file, *filter(None, inside.split(".")), case.get("name", "")])
        outcomes[name] = case.find("failure") is None and case.find("error") is None
    return outcomes


def from_go(output: str) -> dict[str, bool]:
    """`go test -v`'s lines as `{test or test/subtest: passed}`."""
    found = re.findall(r"^ *--- (PASS|FAIL): (\S+)", output, re.MULTILINE)
    return {name: verdict == "PASS" for verdict, name in found}


def from_cargo(output: str) -> dict[str, bool]:
    """`cargo test`'s lines as `{binary::test: passed}`; the binary is named by its Running line."""
    outcomes: dict[str, bool] = {}
    binary = ""
    for line in output.splitlines():
        if running := re.search(r"Running tests/(\w+)\.rs", line):
            binary = running.group(1)
        elif verdict := re.match(r"test (\S+) \.\.\. (ok|FAILED)", line):
            outcomes[f"{binary}::{verdict.group(1)}"] = verdict.group(2) == "ok"
    return outcomes
