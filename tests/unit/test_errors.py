"""The exception tree as commands and pickles see it."""

import pickle

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


def test_codes_are_kafkas() -> None:
    assert int(Code.TOPIC_ALREADY_EXISTS) == 36
    assert int(Code.UNKNOWN_TOPIC_ID) == 100
