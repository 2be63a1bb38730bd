"""How clients of listeners with TLS are named by their certificates (KIP-371).

`ssl.principal.mapping.rules` is a list of `DEFAULT` or `RULE:pattern/replacement/` (or `.../L`,
`.../U`) with commas between. A backslash keeps the next character, such as a slash, in a pattern or
replacement; a comma needs none. The core has the patterns and gives the names.
Functions of text alone: `Config` uses them for its checks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krust._krust import PrincipalRules
from krust.errors import ConfigError
from krust.listeners import PREFIX, PRINCIPAL_RULES, listener_text, listeners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krust.listeners import SettingLookup

_RULE = re.compile(
    r"DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)",
    re.DOTALL,
)
_END = re.compile(r"\s*(?:,|$)")


def rules(text: SettingLookup, listener: str) -> PrincipalRules:
    """The rules of a listener. ConfigError: one of them is wrong."""
    given = listener_text(text, listener, PRINCIPAL_RULES) or ""
    try:
        return PrincipalRules(parse(given))
    except ConfigError as error:
        raise ConfigError(
            f"listener {listener}: {PRINCIPAL_RULES} is wrong: {error}",
            hint=r"write DEFAULT, or RULE:PATTERN/REPLACEMENT/ with L or U after it, and commas "
            f"between rules, as RULE:^CN=(.*?),.*$/$1/L,DEFAULT (or "
            f"{PREFIX}{listener.lower()}.{PRINCIPAL_RULES})",
        ) from None


def parse(given: str) -> list[tuple[str, str, str] | None]:
    """The rules in a text, each as pattern, replacement, and "", "L" or "U"; None is `DEFAULT`.

    raises  ConfigError: there is none, or one that is no rule
    """
    found: list[tuple[str, str, str] | None] = []
    rest = given.strip()
    while rest:
        rule = _RULE.match(rest)
        after = rest[rule.end() :] if rule else rest
        end = _END.match(after)
        if end is None:
            what = f"{after!r} follows a rule" if rule else f"{rest!r} is no rule"
            raise ConfigError(what, hint="write RULE:PATTERN/REPLACEMENT/")
        if rule:
            pattern, replacement, case = rule.group("pattern", "replacement", "case")
            found.append(None if pattern is None else (pattern, replacement, case))
        rest = after[end.end() :].lstrip()
    if not found:
        raise ConfigError("it has no rule, so no client gets in", hint="write DEFAULT")
    return found


def problems(text: SettingLookup) -> Iterator[ConfigError]:
    """What is wrong with the rules of the listeners."""
    for each in listeners(text):
        if each.names_by_certificates:
            try:
                rules(text, each.name)
            except ConfigError as error:
                yield error
