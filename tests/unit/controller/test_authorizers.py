"""What an authorizer in Python may return, and what is refused."""

from __future__ import annotations

import pytest

from krust.controller.authorizers import MOST_ACLS, MOST_CHARACTERS, AnswerError, ClientAcl, rows
from krust.errors import ConfigError

TOPIC, LITERAL, PREFIXED, READ, WRITE, ALLOW, DENY = 2, 3, 4, 3, 4, 3, 2


def test_words_are_kafkas_in_any_case() -> None:
    for kind in ("transactional-id", "TRANSACTIONAL_ID", "TransactionalId"):
        for operation in ("describe-configs", "DescribeConfigs", "DESCRIBE_CONFIGS"):
            acl = ClientAcl(kind, "t", (operation,), "LITERAL", "Allow")
            assert acl.rows() == [(5, LITERAL, "t", 10, ALLOW)]


def test_a_name_that_ends_with_a_star_is_the_beginning_of_names() -> None:
    assert ClientAcl.allow("topic", "a-*", "read", "write").rows() == [
        (TOPIC, PREFIXED, "a-", READ, ALLOW),
        (TOPIC, PREFIXED, "a-", WRITE, ALLOW),
    ]
    assert ClientAcl.deny("topic", "*", "read").rows() == [(TOPIC, LITERAL, "*", READ, DENY)]
    assert ClientAcl.allow("topic", "a", "read").rows() == [(TOPIC, LITERAL, "a", READ, ALLOW)]
    assert ClientAcl("topic", "a*", ("read",)).rows() == [(TOPIC, LITERAL, "a*", READ, ALLOW)]


@pytest.mark.parametrize(
    ("kind", "name", "operations", "says"),
    [
        ("topik", "a", ("read",), "topik"),
        ("topic", "a", ("reed",), "reed"),
        ("topic", "a", (), "has no operations"),
        ("topic", "", ("read",), "is no name"),
        ("topic", "x" * 40_000, ("read",), "is no name"),
        ("cluster", "mine", ("create",), "the only cluster is kafka-cluster"),
    ],
)
def test_a_wrong_word_is_an_error_where_it_is_written(
    kind: str, name: str, operations: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        ClientAcl.allow(kind, name, *operations)


def test_a_name_has_as_many_characters_as_kafkas_strings() -> None:
    assert ClientAcl.allow("topic", "x" * MOST_CHARACTERS, "read").rows()
    with pytest.raises(ConfigError, match="is no name of a topic"):
        ClientAcl.allow("topic", "x" * (MOST_CHARACTERS + 1), "read")


def test_operations_as_one_text_are_an_error() -> None:
    with pytest.raises(ConfigError, match="no operations"):
        ClientAcl("topic", "a", "read")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "returned None"),
        (7, "returned 7"),
        (True, "returned True"),
        ("allow", "returned 'allow'"),
        (["read"], "'read' in its list"),
        ([("topic", "a", "read")], "in its list"),
    ],
)
def test_an_answer_that_is_no_list_of_acls_is_named(answer: object, says: str) -> None:
    with pytest.raises(AnswerError, match=says.replace("(", r"\(")):
        rows(answer)


def test_any_iterable_of_acls_is_an_answer_and_its_length_has_a_limit() -> None:
    one = ClientAcl.allow("topic", "a", "read")
    assert rows(iter([one])) == rows((one,)) == rows({one}) == one.rows()
    assert rows([]) == []
    with pytest.raises(AnswerError, match=f"more than {MOST_ACLS}"):
        rows(ClientAcl.allow("topic", f"t-{number}", "read") for number in range(MOST_ACLS + 1))
