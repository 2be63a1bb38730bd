"""The rules of `ssl.principal.mapping.rules`: what is one, what each names, what is refused."""

import pytest

from krust._krust import PrincipalRules
from krust.config import load
from krust.errors import ConfigError
from krust.principals import parse, rules

RULES = "ssl.principal.mapping.rules"
ALICE = "CN=alice,OU=dev,O=krust,C=DE"


def listening(given: str, protocol: str = "SSL", name: str = RULES) -> dict[str, object]:
    mapped = {"listeners": "A://:0", "listener.security.protocol.map": f"A:{protocol}"}
    return {**mapped, "sasl.enabled.mechanisms": "SCRAM-SHA-512", name: given}


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("DEFAULT", [None]),
        (" DEFAULT , ", [None]),
        (",DEFAULT", [None]),
        ("RULE:a/b/", [("a", "b", "")]),
        ("RULE:a,b/$1,c/L , DEFAULT", [("a,b", "$1,c", "L"), None]),
        (r"RULE:a\/b\,\\/\/c\$/U,DEFAULT", [(r"a\/b\,\\", r"\/c\$", "U"), None]),
        ("RULE:x//,RULE:/y/", [("x", "", ""), ("", "y", "")]),
        ("RULE:^CN=(.*?),\n.*$/$1/", [("^CN=(.*?),\n.*$", "$1", "")]),
    ],
)
def test_rules_are_divided_by_commas(given: str, parsed: list[object]) -> None:
    assert parse(given) == parsed


@pytest.mark.parametrize(
    "given",
    [
        "",
        " , ",
        "FOO",
        "default",
        "rule:a/b/",
        "DEFAULTX",
        "DEFAULT DEFAULT",
        "DEFAULT;DEFAULT",
        "RULE:a/b",
        r"RULE:a/b\/",
        "RULE:a/b/l",
        "RULE:a/b/LU",
        "RULE:a/b/ L",
        "RULE:a/b/c/d/",
        "RULE:a/b/DEFAULT",
        "RULE:a/b/,RULE:c",
    ],
)
def test_what_is_no_rule_is_refused(given: str) -> None:
    with pytest.raises(ConfigError):
        parse(given)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("RULE:(/x/", r"listener A: .*RULE:\(/x/: .*unclosed group"),
        ("RULE:(?i)cn=.*/x/", r"no flags in patterns; write \[Aa\]"),
        ("RULE:CN=.*/$1/", "names no group"),
        ("DEFAULT,RULE:a/b", "'RULE:a/b' is no rule"),
        ("RULE:a/b/LU", "'U' follows a rule"),
    ],
)
def test_a_wrong_rule_refuses_the_start_and_says_what_to_write(given: str, match: str) -> None:
    for name in (RULES, f"listener.name.a.{RULES}"):
        with pytest.raises(ConfigError, match=f"(?s){match}") as caught:
            load(options=listening(given, name=name))
        assert "RULE:^CN=(.*?),.*$/$1/L,DEFAULT" in str(caught.value.hint)


def test_rules_matter_only_where_certificates_name_clients() -> None:
    for protocol in ("PLAINTEXT", "SASL_SSL"):
        load(options=listening("RULE:(/x/", protocol))


def test_a_listener_has_its_own_rules_or_those_of_all() -> None:
    options = {"listeners": "A://:0,B://:0", "listener.security.protocol.map": "A:SSL,B:SSL"}
    made = load(
        options={
            **options,
            RULES: "RULE:^CN=(.*?),.*$/$1/U,DEFAULT",
            f"listener.name.b.{RULES}": r"RULE:.*OU=(\w+).*/$1/",
        }
    )
    assert made.notices == []
    assert rules(made.text, "A").name(ALICE) == "ALICE"
    assert rules(made.text, "A").name("O=x") == "O=x"
    assert rules(made.text, "B").name(ALICE) == "dev"
    assert rules(made.text, "B").name("O=x") is None
    assert rules(load().text, "C").name(ALICE) == ALICE


def test_a_subject_of_many_letters_takes_no_time_that_grows_faster() -> None:
    made = PrincipalRules([("(a|a)*(a*)*b", "x", ""), None])
    subject = "a" * 20_000
    assert made.name(subject) == subject
