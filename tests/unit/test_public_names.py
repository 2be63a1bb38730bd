"""The public names of `krust`: complete in an editor, with times in milliseconds."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType

import pytest

import krust
from krust.clients import keywords, options
from krust.clients.consumer import SETTINGS
from krust.clients.simple import SimpleConsumer

FOREIGN = {"client_config", "kwargs"}
"""whose keywords are settings of clients that are not krust's"""


def functions() -> Iterator[tuple[str, FunctionType]]:
    found = {name: getattr(krust, name) for name in krust.__all__}
    for name, thing in {**found, "SimpleConsumer": SimpleConsumer}.items():
        if isinstance(thing, FunctionType):
            yield name, thing
        elif isinstance(thing, type):
            for inner, method in vars(thing).items():
                written = isinstance(method, FunctionType) and method.__module__ != "typing"
                if written and (inner[0] != "_" or inner == "__init__"):
                    yield f"{name}.{inner}", method


@pytest.mark.parametrize(("name", "function"), list(functions()))
def test_a_signature_names_what_it_takes_and_counts_time_in_milliseconds(
    name: str, function: FunctionType
) -> None:
    for parameter in inspect.signature(function).parameters.values():
        place = f"{name}: {parameter}"
        assert parameter.name == "self" or parameter.annotation is not parameter.empty, place
        if parameter.kind is parameter.VAR_KEYWORD and name.rpartition(".")[2] not in FOREIGN:
            assert str(parameter.annotation).startswith("Unpack["), f"{place} says nothing"
        if "timeout" in parameter.name:
            assert parameter.name.endswith("_ms"), place
        assert not parameter.name.endswith(("_s", "_sec", "_seconds")), place


def test_the_public_names_are_exactly_those_documented() -> None:
    assert sorted(krust.__all__) == dir(krust)
    assert all(hasattr(krust, name) for name in krust.__all__)


def test_all_errors_are_one_tree() -> None:
    errors = [krust.ConfigError, krust.ServerError, krust.UnreachableError, krust.KafkaError]
    assert all(issubclass(error, krust.KrustError) for error in [*errors, krust.ForkedError])
    refused = krust.KafkaError("no", code=7, name="REQUEST_TIMED_OUT", retriable=True)
    assert (refused.code, refused.name, refused.retriable) == (7, "REQUEST_TIMED_OUT", True)


def test_settings_are_those_that_clients_take() -> None:
    assert "linger.ms" in options.PRODUCER
    assert options.COMMON < options.FETCH < SETTINGS
    assert keywords.keys(keywords.ScanSettings) | {"isolation.level"} == options.FETCH | {
        "default.api.timeout.ms"
    }


@pytest.mark.parametrize(
    ("plain", "awaited"),
    [(krust.Admin, krust.AsyncAdmin), (krust.Consumer, krust.AsyncConsumer)],
)
def test_asynchronous_clients_take_the_arguments_of_the_synchronous_ones(
    plain: type, awaited: type
) -> None:
    for name, method in vars(plain).items():
        if name.startswith("_") or not isinstance(method, FunctionType):
            continue
        if name in ("positions", "restore"):  # what an awaitable consumer is made of
            continue
        theirs = getattr(awaited, name)
        assert [
            (one.name, one.kind, one.default)
            for one in inspect.signature(method).parameters.values()
        ] == [
            (one.name, one.kind, one.default)
            for one in inspect.signature(theirs).parameters.values()
        ], name
