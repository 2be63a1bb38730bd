"""The settings of a broker: the sources of values, and which value holds.

From weak to strong: default < mode < file < environment `KAFKA_*`, `KAFKA_CFG_*` < `KRUST_*` <
options. A file that was written for Kafka and `KAFKA_*` variables may have settings that krust does
not use. They are listed in one notice and have no effect, unless they ask for security
(`foreign.py`). In all other sources an unknown setting is an error. All invalid settings are
reported together in one error.

A file is a Java `server.properties`, or TOML with Kafka's names as quoted keys (`"num.partitions" =
3`), because a bare `broker.id` would be a table. `settings.py` has the table of settings.

`Config` has the values that hold: immutable, picklable, as text by name like Kafka's, typed on
demand.
Not promised: changes of a running broker. They are in its metadata store.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from krust import authorizer, foreign, listeners, principals
from krust.errors import ConfigError, KrustError
from krust.named_tuple import NamedTuple
from krust.properties import properties
from krust.settings import BROKER, TOPIC, Setting, Type, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from krust.listeners import SettingLookup

_EQUAL = {"node.id": "broker.id"}
"""Settings that are another name of an older one."""

_DEV = {"group.initial.rebalance.delay.ms": "0"}
_PROD = {"krust.group.evict.on.disconnect": "false"}
_MODES = {"dev": _DEV, "prod": _PROD}
"""The settings that a mode changes; prod changes none."""

ASSIGNORS = "krust.group.server.assignor"
RETENTION = "krust.retention.policy"
SELECTOR = "replica.selector.class"
KAFKA_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
"""Kafka's replica selectors, which krust's core has."""
_PARAMETERS = (ASSIGNORS, RETENTION, SELECTOR, authorizer.CLASS)
"""Settings that name plug-ins, which may have parameters."""
MOST_PLUG_INS = 16
"""The most plug-ins of a setting; each may need a process."""

_MS = {"hours": 3_600_000, "minutes": 60_000, "ms": 1}

_UNSET = {"", "null"}


class SettingSource(NamedTuple):
    """The source of a value."""

    kind: str
    """default, mode, file, environment or option"""
    place: str
    """the file, the variable, the option"""
    lenient: bool = False
    """whether a setting that krust does not use is listed instead of being an error"""


class GivenSetting(NamedTuple):
    """The text of a setting and its source."""

    text: str
    source: SettingSource


class Config:
    """The settings that hold. `config["num.partitions"]` is the typed value 1.

    problems  a list that gets the error of each invalid setting, which then counts as unset
    raises    ConfigError: without such a list, one error for all invalid settings
    """

    def __init__(
        self,
        setups: Mapping[str, GivenSetting] | None = None,
        notices: Iterable[str] = (),
        problems: list[KrustError] | None = None,
    ) -> None:
        self._setups = dict(setups or {})
        self.notices = list(notices)
        """Lines to log once: settings without an effect, unknown variables."""
        review = _Review(self._setups)
        self._settle(review)
        if problems is None:
            review.raise_problems()
        else:
            problems += review.problems
        self.notices += review.notices()

    def __getitem__(self, name: str) -> Value:
        return _parsed(_setting(name), self.text(name))

    def __repr__(self) -> str:
        return f"Config({ {name: setup.text for name, setup in self.given().items()} })"

    def text(self, name: str) -> str | None:
        """The value as text; None: unset."""
        setup = self._setups.get(name)
        return setup.text if setup else _setting(name).default

    def whole(self, name: str) -> int:
        """The value of an integer setting."""
        value = self[name]
        if not isinstance(value, int):
            raise ConfigError(f"{name} is not set", hint=f"set {name} to a number")
        return value

    def true(self, name: str) -> bool:
        """The value of a boolean setting."""
        return self[name] is True

    def source(self, name: str) -> SettingSource:
        """The source of the value."""
        setup = self._setups.get(name)
        return setup.source if setup else SettingSource("default", "")

    def given(self) -> dict[str, GivenSetting]:
        """All settings that are not defaults, by name."""
        return dict(self._setups)

    @property
    def mode(self) -> str:
        """`dev` or `prod`."""
        return str(self.text("krust.mode"))

    def log_dirs(self) -> list[Path]:
        """The log directories, at least one. The first also has the broker's own files."""
        text = self.text("log.dirs") or self.text("log.dir") or ""
        dirs = [Path(each.strip()) for each in text.split(",") if each.strip()]
        if not dirs:
            raise ConfigError("log.dirs names no directory", hint="name one, or leave it out")
        return dirs

    def topic_default(self, name: str) -> str | None:
        """The default of a topic setting, from the broker's settings."""
        return topic_default(name, self.text)

    def _settle(self, review: _Review) -> None:
        """Check each value, apply the mode, and note the settings that are ignored."""
        review.drop_controller_listeners()
        for name, setup in list(self._setups.items()):
            setting = _row(name)
            if setting is None:
                review.unknown(name, setup)
                del self._setups[name]
            elif setup.text in _UNSET and setting.default is None:
                del self._setups[name]
            elif review.accepts(setting, setup):
                other = _EQUAL.get(name)
                if other is not None:
                    self._setups.setdefault(other, setup)
            else:
                del self._setups[name]
        for name, check in VALUE_CHECKS.items():
            try:
                check(self.text(name) or "")
            except ConfigError as error:
                review.problems.append(error)
                self._setups.pop(name, None)
        self._choose_mode()
        review.problems += listeners.problems(self.text)
        if any(each.has_logins for each in listeners.listeners(self.text)):
            from krust import sasl

            review.problems += sasl.problems(self.text)
        review.problems += principals.problems(self.text)
        review.problems += authorizer.problems(self.text)

    def _choose_mode(self) -> None:
        """Determine `krust.mode`, and apply it to settings that no other source sets."""
        if self.text("krust.mode") == "auto":
            named = listeners.listeners(self.text)
            mode = "dev" if all(_is_loopback(each.host) for each in named) else "prod"
            self._setups["krust.mode"] = GivenSetting(
                mode, SettingSource("mode", "by the listeners")
            )
        for name, text in _MODES[self.mode].items():
            self._setups.setdefault(name, GivenSetting(text, SettingSource("mode", self.mode)))


def load(
    *,
    files: Iterable[Path] = (),
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    reserved: Iterable[str] = (),
    mode: str | None = None,
    problems: list[KrustError] | None = None,
) -> Config:
    """The settings of files (a later one wins), environment and options (`-o k=v`, arguments).

    environ   the variables; those in `reserved` are not settings
    options   by Kafka's name; True, 3 and ["a"] are converted to text
    mode      strict or warn, for settings without an effect in files and `KAFKA_*`; None: warn in
              sources that Kafka reads too, strict in krust's own files
    problems  as in Config
    raises    ConfigError: unknown settings, bad values, unreadable file
    """
    notices: list[str] = []
    setups: dict[str, GivenSetting] = {}
    for path in files:
        setups |= read_file(path, mode)
    setups |= _from_environment(environ or {}, set(reserved), notices, mode)
    for name, value in (options or {}).items():
        text = _text(value)
        if text is not None or _row(name) is None:
            setups[name] = GivenSetting(text or "", SettingSource("option", name))
    return Config(setups, notices, problems)


def read_file(path: Path, mode: str | None = None) -> dict[str, GivenSetting]:
    """The settings of a `.toml` or Java properties file, known to krust or not."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read {path}: {reason}", hint="name a readable file") from None
    pairs = _toml(text, path) if path.suffix == ".toml" else properties(text)
    if mode is None:
        mode = foreign.WARN if foreign.is_kafkas(path.suffix, pairs) else foreign.STRICT
    source = SettingSource("file", str(path), mode == foreign.WARN)
    return {name: GivenSetting(value, source) for name, value in pairs.items()}


def _toml(text: str, path: Path) -> dict[str, str]:
    """TOML with Kafka's names as quoted keys."""
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="fix that line") from None
    pairs: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            raise ConfigError(
                f'{path}: "{name}" is a table, but settings are quoted keys',
                hint=f'write "{name}.{next(iter(value), "...")}" = ... with the quotes',
            )
        pairs[name] = _text(value) or ""
    return pairs


def _text(value: object) -> str | None:
    """A value as Kafka writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _from_environment(
    environ: Mapping[str, str], reserved: set[str], notices: list[str], mode: str | None
) -> dict[str, GivenSetting]:
    """`KAFKA_*`, then `KAFKA_CFG_*`, then `KRUST_*`. One notice lists unknown `KAFKA_*`."""
    setups: dict[str, GivenSetting] = {}
    strangers: list[str] = []
    reserved = reserved | foreign.LAUNCHER
    for prefix in ("KAFKA_", "KAFKA_CFG_", "KRUST_"):
        for variable, value in sorted(environ.items()):
            longer = prefix == "KAFKA_" and variable.startswith("KAFKA_CFG_")
            if longer or variable in reserved or not variable.startswith(prefix):
                continue
            name = variable_name(variable[len(prefix) :])
            if prefix == "KRUST_" and _row(f"krust.{name}") is not None:
                name = f"krust.{name}"
            lenient = prefix != "KRUST_" and mode != foreign.STRICT
            if prefix == "KRUST_" or name in BROKER or _ENFORCED.match(name):
                setups[name] = GivenSetting(value, SettingSource("environment", variable, lenient))
            else:
                strangers.append(variable)
    if strangers:
        named = ", ".join(strangers)
        notices.append(f"environment variables that name no setting of a broker: {named}")
    return setups


def variable_name(rest: str) -> str:
    """The setting of a variable: `_` is `.`, `__` is `_`, `___` is `-` (as Apache's image)."""
    marked = rest.replace("___", "\0").replace("__", "\1").replace("_", ".")
    return marked.replace("\0", "-").replace("\1", "_").lower()


def _row(name: str) -> Setting | None:
    """The row of a setting, of a listener's own one, or of a plug-in's parameter; None: none."""
    setting = BROKER.get(name)
    of_listeners = BROKER.get(listeners.base_name(name) or "")
    if of_listeners is not None:
        return of_listeners._replace(name=name, default=None)
    if setting is None and any(_is_parameter(name, of) for of in _PARAMETERS):
        doc = "A parameter of a plug-in, given to its configure()."
        return Setting(name, Type.STRING, None, "*", "yes", "fixed", doc)
    return setting


def _is_parameter(name: str, setting: str) -> bool:
    """Whether it is `SETTING.PLUG-IN.KEY`."""
    plug_in, dot, key = name.removeprefix(f"{setting}.").partition(".")
    return name.startswith(f"{setting}.") and bool(plug_in and dot and key)


def _setting(name: str, where: str = "") -> Setting:
    """The row of a setting. ConfigError: unknown; it suggests a similar name."""
    setting = _row(name)
    if setting is None:
        raise unknown(name, BROKER, where)
    return setting


def unknown(name: str, table: Mapping[str, Setting], where: str = "") -> ConfigError:
    """The error for a name that the table does not have."""
    from difflib import get_close_matches

    near = get_close_matches(name, table, 1)
    hint = f"did you mean {near[0]}?" if near else None
    if hint is None and name in TOPIC and table is BROKER:
        hint = f"{name} is a topic's setting; for all topics set {TOPIC[name].synonyms[0]}"
    return ConfigError(
        f"unknown setting {name}{where}", hint=hint or "krust config explain lists all"
    )


def _parsed(setting: Setting, text: str | None) -> Value:
    """The typed value. ConfigError: invalid; it names setting and value."""
    try:
        return setting.parse(text)
    except ValueError as error:
        shown = "(hidden)" if setting.sensitive else repr(text)
        raise ConfigError(
            f"{setting.name} = {shown}: {error}", hint=f"default: {setting.default}"
        ) from None


class _Review:
    """Collects invalid settings and settings without an effect, before any is used."""

    def __init__(self, setups: dict[str, GivenSetting]) -> None:
        self._setups = setups
        self.problems: list[ConfigError] = []
        self._idle: list[str] = []
        self._foreign: dict[str, list[str]] = {}
        providers = setups.get("config.providers")
        self._providers = providers.text if providers is not None else ""

    def accepts(self, setting: Setting, setup: GivenSetting) -> bool:
        """Whether a known setting has an effect."""
        name, where = setting.name, _where(setup)
        try:
            if foreign.refers_to_provider(setup.text, self._providers):
                raise ConfigError(
                    f"{name} refers to a provider{where}, and krust asks none",
                    hint=f"write the value of {name} itself",
                )
            if setting.support == "yes" or not setup.source.lenient:
                _parsed(setting, setup.text)
        except ConfigError as error:
            self.problems.append(error)
            return False
        if setting.support == "yes" or setup.source.kind == "mode":
            return True
        if setup.text.strip() == (setting.default or ""):
            return True
        if foreign.is_security(name):
            self._refuse_security(name, where)
        elif name == "process.roles" and _list_of(setup.text) == ["controller"]:
            what = f"process.roles is controller{where}: krust runs brokers only"
            self.problems.append(ConfigError(what, hint="start it with the file of a broker"))
        elif setup.source.lenient:
            self._note(name, setup, foreign.meaning(name) or setting.doc)
        elif setting.support == "ignored":
            self._idle.append(f"{name} does nothing here{where}")
        else:
            what = f"{name} cannot be set here{where}: {setting.doc}"
            self.problems.append(ConfigError(what, hint=f"take {name} out"))
        return setting.support == "ignored" and not setup.source.lenient

    def unknown(self, name: str, setup: GivenSetting) -> None:
        """Note an unknown setting as a problem or for a notice."""
        where = _where(setup)
        error = unknown(name, BROKER, where if setup.source.kind != "option" else "")
        if foreign.is_security(name):
            self._refuse_security(name, where)
        elif not setup.source.lenient:
            self.problems.append(error)
        else:
            explanation = foreign.meaning(name)
            near = error.hint if str(error.hint).startswith(("did you", name)) else "take it out"
            self._note(
                name, setup, explanation or f"no setting of a broker that krust knows; {near}"
            )

    def drop_controller_listeners(self) -> None:
        """Remove KRaft's controller listeners from a file of Kafka's."""
        controllers = self._setups.get(foreign.CONTROLLER_LISTENERS)
        if controllers is None or not controllers.source.lenient:
            return
        for name in ("listeners", "advertised.listeners"):
            setup = self._setups.get(name)
            if setup is not None:
                kept = foreign.without(setup.text, controllers.text)
                self._setups[name] = setup._replace(text=kept)
                if not kept:
                    del self._setups[name]

    def raise_problems(self) -> None:
        """Raise one error for all problems."""
        if self.problems:
            raise ConfigError.all_of(self.problems)

    def notices(self) -> list[str]:
        """Settings without an effect: a line or a notice for each source."""
        grouped = [
            f"{place} was written for Kafka; in krust, {len(lines)} of its settings "
            f"{'does' if len(lines) == 1 else 'do'} nothing "
            "(--config-mode strict refuses them):\n  " + "\n  ".join(lines)
            for place, lines in self._foreign.items()
        ]
        return self._idle + grouped

    def _refuse_security(self, name: str, where: str) -> None:
        what = f"{name} asks for security that krust does not offer{where}"
        hint = f"remove {name}, and let only trusted clients reach the listeners"
        self.problems.append(ConfigError(what, hint=hint))

    def _note(self, name: str, setup: GivenSetting, explanation: str) -> None:
        source = setup.source
        group = source.place if source.kind == "file" else "the environment"
        self._foreign.setdefault(group, []).append(f"{name}: {explanation}")


_ENFORCED = re.compile(r"listener\.name\.|ssl\.\w+\.filename$")
"""Variables that are not settings of a broker, but ask for security in images."""


def _where(setup: GivenSetting) -> str:
    return f" ({setup.source.place or setup.source.kind})"


def _list_of(text: str) -> list[str]:
    return [item.strip().lower() for item in text.split(",") if item.strip()]


def rules(setting: str, text: str) -> list[tuple[str, str]]:
    """`orders-*=uniform, billing=my.module:Class` as (pattern of names, plug-in)."""
    found: list[tuple[str, str]] = []
    for item in filter(None, map(str.strip, text.split(","))):
        pattern, equals, name = (part.strip() for part in item.partition("="))
        module, colon, attribute = name.partition(":")
        if not (pattern and equals and module and (attribute or not colon)):
            raise ConfigError(
                f"{setting} = {item!r} is no pattern of names and a plug-in for them",
                hint="write PATTERN=NAME or PATTERN=module:Class",
            )
        found.append((pattern, name))
    if len({name for _, name in found}) > MOST_PLUG_INS:
        hint = f"{MOST_PLUG_INS} are possible"
        raise ConfigError(f"{setting} names {len(found)} plug-ins", hint=hint)
    return found


def _replica_selector(name: str) -> None:
    if "." in name and ":" not in name and name not in KAFKA_SELECTORS:
        hint = f"write module:Class, or {KAFKA_SELECTORS[1]}"
        raise ConfigError(f"{SELECTOR} = {name!r} is a class that krust does not have", hint=hint)


VALUE_CHECKS: dict[str, Callable[[str], object]] = {
    "listeners": listeners.addresses,
    "advertised.listeners": lambda text: listeners.addresses(text) if text else None,
    listeners.PER_IP_OVERRIDES: listeners.check_overrides,
    ASSIGNORS: lambda text: rules(ASSIGNORS, text),
    RETENTION: lambda text: rules(RETENTION, text),
    SELECTOR: _replica_selector,
}
"""Checks of settings beyond their type."""


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def topic_default(name: str, broker: SettingLookup) -> str | None:
    """The default of a topic setting, from the first broker synonym that is set, in the right unit.

    broker   text of a broker setting by name; None: unset
    """
    setting = TOPIC[name]
    for synonym in setting.synonyms:
        text = broker(synonym)
        if text is not None:
            return converted(name, synonym, text)
    return setting.default


def converted(name: str, synonym: str, text: str) -> str:
    """The text of a synonym in the unit of the topic setting (hours and minutes become ms)."""
    factor = _MS.get(synonym.rpartition(".")[2], 1)
    if not name.endswith(".ms") or factor == 1:
        return text
    return str(int(text) * factor if int(text) >= 0 else -1)


def parse_topic(name: str, text: str) -> Value:
    """The typed value of a topic setting. ConfigError: unknown or invalid."""
    setting = TOPIC.get(name)
    if setting is None:
        raise unknown(name, TOPIC)
    return _parsed(setting, text)
