"""The exception tree as commands and pickles see it."""

import pickle
import re
from pathlib import Path

import pytest

from krust.cli.exits import Exit, exit_of
from krust.errors import Code, ConfigError, ForkedError, KafkaError, ServerError, UnreachableError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), Exit.USAGE),
        (ServerError("x"), Exit.NOT_STARTED),
        (ForkedError("x"), Exit.NOT_STARTED),
        (UnreachableError("x"), Exit.UNREACHABLE),
        (KafkaError("x", code=36, name="TOPIC_ALREADY_EXISTS"), Exit.EXISTS),
        (KafkaError("x", code=3, name="UNKNOWN_TOPIC_OR_PARTITION"), Exit.NOT_FOUND),
        (KafkaError("x"), Exit.FAILED),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: Exit) -> None:
    assert exit_of(error) is code


def test_an_error_survives_pickle() -> None:
    error = KafkaError("no", code=7, name="REQUEST_TIMED_OUT", retriable=True, hint="again")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.code, copy.name) == ("no", 7, "REQUEST_TIMED_OUT")
    assert (copy.retriable, copy.hint) == (True, "again")


def test_python_and_rust_have_the_same_table_of_error_codes() -> None:
    table = (Path(__file__).parents[2] / "rust/src/protocol/error.rs").read_text()
    rows = re.findall(r'(?m)^ +(-?\d+) \w+ "(\w+)" (?:true|false)$', table)
    assert {name: int(code) for code, name in rows} == {each.name: int(each) for each in Code}
