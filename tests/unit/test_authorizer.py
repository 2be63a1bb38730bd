"""The settings of the authorizer: which classes krust has, and who is a super user."""

import pytest

from krust.authorizer import CLASSES, authorizer, is_configured, plug_in, problems
from krust.config import Config, load
from krust.errors import ConfigError

CLASS, SUPER_USERS = "authorizer.class.name", "super.users"


def config(**more: object) -> Config:
    return load(options={name.replace("_", "."): value for name, value in more.items()})


def test_without_a_class_there_is_no_authorizer() -> None:
    for options in ({}, {CLASS: ""}, {CLASS: " "}, {SUPER_USERS: "User:a"}):
        made = load(options=options)
        assert authorizer(made.text) is None
        assert not is_configured(made.text)


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_kafkas_is_krusts_authorizer(name: str) -> None:
    made = config(authorizer_class_name=name)
    assert authorizer(made.text) == ([], False)
    assert is_configured(made.text)
    assert made.notices == []


@pytest.mark.parametrize("name", ["teams:Teams", "a.b:C.D", "teams"])
def test_a_python_class_gives_acls_and_those_of_the_cluster_are_not_obeyed(name: str) -> None:
    parameter = {"authorizer.class.name.teams.blocked": "file"}
    made = load(options={CLASS: name, SUPER_USERS: "User:a", **parameter})
    assert (plug_in(made.text), authorizer(made.text)) == (name, (["User:a"], False))
    assert not is_configured(made.text)
    assert all(not plug_in(load(options={CLASS: each}).text) for each in ("", *CLASSES))


@pytest.mark.parametrize("name", ["my.Acl", "kafka.security.authorizer.aclauthorizer"])
def test_another_class_refuses_the_start_and_names_one_that_works(name: str) -> None:
    with pytest.raises(ConfigError, match="loads no Java class") as caught:
        load(options={CLASS: name})
    assert CLASSES[0] in str(caught.value.hint)


def test_super_users_are_divided_by_semicolons() -> None:
    given = {
        "User:admin": ["User:admin"],
        "User:a; User:b ;": ["User:a", "User:b"],
        "User:CN=a,O=b;User:a:b": ["User:CN=a,O=b", "User:a:b"],
        "": [],
        " ; ": [],
    }
    for text, users in given.items():
        made = load(options={CLASS: CLASSES[0], SUPER_USERS: text})
        assert authorizer(made.text) == (users, False)


@pytest.mark.parametrize("text", ["admin", "User:", "User:a;b", "Group:a", "user:a", "User:a,b;c"])
def test_a_super_user_that_is_no_user_refuses_the_start(text: str) -> None:
    for options in ({SUPER_USERS: text}, {SUPER_USERS: text, CLASS: CLASSES[0]}):
        with pytest.raises(ConfigError, match="which is no user") as caught:
            load(options=options)
        assert "User:NAME;User:NAME" in str(caught.value.hint)


def test_everyone_may_use_what_no_acl_names_only_if_that_is_set() -> None:
    for text, allowed in (("true", True), ("false", False), (" TRUE ", True)):
        made = load(options={CLASS: CLASSES[0], "allow.everyone.if.no.acl.found": text})
        assert authorizer(made.text) == ([], allowed)
    with pytest.raises(ConfigError, match="true or false"):
        load(options={"allow.everyone.if.no.acl.found": "yes"})


def test_all_good_settings_have_no_problem() -> None:
    assert list(problems(load(options={CLASS: CLASSES[0], SUPER_USERS: "User:a"}).text)) == []
