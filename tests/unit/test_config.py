"""Sources of settings, which one wins, and which settings are refused."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.config import Config, load, parse_topic, variable_name
from krust.errors import ConfigError
from krust.listeners import addresses
from krust.properties import properties
from krust.settings import BROKER, TOPIC, Setting


@pytest.mark.parametrize("setting", [*BROKER.values(), *TOPIC.values()], ids=lambda s: s.name)
def test_every_default_is_a_value_of_its_setting(setting: Setting) -> None:
    setting.parse(setting.default)
    assert setting.doc.endswith(".")
    assert setting.support in ("yes", "ignored", "refused")
    assert all(name in BROKER for name in setting.synonyms)


def test_every_setting_that_is_documented_to_act_is_read() -> None:
    root = Path(__file__).parents[2]
    files = [*root.glob("rust/**/*.rs"), *root.glob("python/krust/**/*.py")]
    text = "".join(file.read_text() for file in files if file.name != "settings.py")
    acts = [one for one in (*BROKER.values(), *TOPIC.values()) if one.support == "yes"]
    read = {one.name for one in acts if f'"{one.name}"' in text}
    read |= {name for one in TOPIC.values() if one.name in read for name in one.synonyms}
    assert not {one.name for one in acts} - read


def test_the_strongest_source_wins(tmp_path: Path) -> None:
    weak, strong = tmp_path / "weak.toml", tmp_path / "strong.properties"
    weak.write_text('"num.partitions" = 2\n"log.retention.hours" = 1\n"message.max.bytes" = 2000\n')
    strong.write_text("num.partitions=3\nlog.retention.hours=2\nfetch.max.bytes=2048\n")
    environ = {"KAFKA_LOG_RETENTION_HOURS": "3", "KAFKA_CFG_FETCH_MAX_BYTES": "4096"}
    environ |= {"KRUST_FETCH_MAX_BYTES": "8192"}
    config = load(files=[weak, strong], environ=environ, options={"num.partitions": 9})
    assert config["num.partitions"] == 9
    assert config["log.retention.hours"] == 3
    assert config["fetch.max.bytes"] == 8192
    assert config["message.max.bytes"] == 2000
    assert config.source("num.partitions").kind == "option"
    assert config.source("log.retention.hours").place == "KAFKA_LOG_RETENTION_HOURS"
    assert config.source("fetch.max.bytes").place == "KRUST_FETCH_MAX_BYTES"
    assert config.source("message.max.bytes").place == str(weak)
    assert config.source("min.insync.replicas").kind == "default"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num.partition", "num.partitions"),
        ("log.retention.hour", "log.retention.hours"),
        ("cleanup.policy", "log.cleanup.policy"),
    ],
)
def test_an_unknown_setting_is_answered_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        load(options={name: "1"})
    assert hint in str(caught.value.hint)


def test_an_unknown_setting_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.properties").write_text("num.partition=3\nkrust.threads=1\n")
    with pytest.raises(ConfigError, match=r"x\.properties"):
        load(files=[tmp_path / "x.properties"])


def test_unknown_kafka_variables_get_one_notice() -> None:
    config = load(environ={"KAFKA_TOPIC": "x", "KAFKA_CLUSTER": "-X", "PATH": "/bin"})
    ignored = "environment variables that name no setting of a broker"
    assert config.notices == [f"{ignored}: KAFKA_CLUSTER, KAFKA_TOPIC"]


def test_variables_of_kafkas_scripts_are_not_mentioned() -> None:
    config = load(environ={"KAFKA_HOME": "/opt", "KAFKA_HEAP_OPTS": "-X", "KAFKA_LOG4J_OPTS": "y"})
    assert not config.notices


def test_an_unknown_krust_variable_is_an_error_unless_it_is_reserved() -> None:
    with pytest.raises(ConfigError, match="KRUST_NUM_PARTITION"):
        load(environ={"KRUST_NUM_PARTITION": "1"})
    load(environ={"KRUST_PORT": "1"}, reserved={"KRUST_PORT"})


def test_krust_variables_name_krust_settings() -> None:
    assert load(environ={"KRUST_FLUSH_MODE": "ack"})["krust.flush.mode"] == "ack"
    assert load(environ={"KRUST_KRUST_THREADS": "2"})["krust.threads"] == 2


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("LOG_RETENTION_HOURS", "log.retention.hours"),
        ("A__B_C", "a_b.c"),
        ("A___B", "a-b"),
    ],
)
def test_variables_are_spelled_as_in_apaches_image(variable: str, name: str) -> None:
    assert variable_name(variable) == name


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "many", "whole number"),
        ("num.partitions", "9" * 5000, "whole number"),
        ("log.preallocate", "yes", "true or false"),
        ("log.cleaner.min.cleanable.ratio", "2", "0 to 1"),
        ("compression.type", "lzma", "one of"),
        ("log.cleanup.policy", "compact,erase", "one of"),
        ("process.roles", "broker", "cannot be set"),
        ("authorizer.class.name", "my.Acl", "loads no Java class"),
        ("super.users", "admin", "is no user"),
        ("listeners", "PLAINTEXT//:9092", "no listener"),
        ("listeners", "SASL_SSL://:9093", "offers GSSAPI, which krust does not have"),
        ("listeners", "ODD://:9093", "no protocol"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "two listeners"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:1", "no address"),
        ("advertised.listeners", "OTHER://a:1", "does not have"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "no host with its limit"),
        ("max.connections.per.ip.overrides", "10.0.0.1:2,::1:x", "no host with its limit"),
        ("max.connections.per.ip", "0", "nobody could connect"),
    ],
)
def test_an_invalid_value_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(options={name: value})
    assert caught.value.hint


def test_a_setting_without_effect_is_logged_once() -> None:
    config = load(options={"metrics.num.samples": "3", "num.io.threads": "8"})
    assert config.notices == ["metrics.num.samples does nothing here (metrics.num.samples)"]


def test_dev_mode_holds_while_all_listeners_are_loopback() -> None:
    dev = load(
        options={"listeners": "A://127.0.0.1:1,B://[::1]:2"}
        | {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    )
    assert (dev.mode, dev["group.initial.rebalance.delay.ms"]) == ("dev", 0)
    prod = load(options={"listeners": "PLAINTEXT://:9092"})
    assert (prod.mode, prod["group.initial.rebalance.delay.ms"]) == ("prod", 3000)
    loaded = load(options={"krust.mode": "dev", "group.initial.rebalance.delay.ms": 7})
    assert loaded["group.initial.rebalance.delay.ms"] == 7


def test_node_id_is_another_name_of_broker_id() -> None:
    assert load(options={"node.id": 3})["broker.id"] == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "604800000"),
        ({"log.retention.hours": "2"}, "7200000"),
        ({"log.retention.hours": "2", "log.retention.minutes": "1"}, "60000"),
        ({"log.retention.minutes": "1", "log.retention.ms": "5"}, "5"),
        ({"log.retention.hours": "-1"}, "-1"),
    ],
)
def test_topics_inherit_the_strongest_unit(options: dict[str, str], expected: str) -> None:
    assert load(options=options).topic_default("retention.ms") == expected


def test_topic_settings_are_checked_by_their_own_table() -> None:
    assert parse_topic("cleanup.policy", "compact, delete") == ["compact", "delete"]
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        parse_topic("retention.ms", "-2")
    with pytest.raises(ConfigError, match="unknown"):
        parse_topic("log.retention.ms", "1")


def test_a_config_survives_pickle() -> None:
    config = load(options={"num.partitions": 3})
    copy = pickle.loads(pickle.dumps(config))
    assert isinstance(copy, Config)
    assert copy.given() == config.given()


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# c\n! c\n a = b\nc:d\ne f\ng\nh=i \\\n   j\nk\\=l=m\\u0041\n=\\t\nlast=x\\"
    assert properties(text) == {
        "a": "b",
        "c": "d",
        "e": "f",
        "g": "",
        "h": "i j",
        "k=l": "mA",
        "": "",
        "last": "x",
    }


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader_of_properties(text: str) -> None:
    for name, value in properties(text).items():
        assert isinstance(name, str)
        assert isinstance(value, str)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z.]{0,20}", fullmatch=True),
        st.from_regex(r"([!-~]([ -~]*[!-~])?)?", fullmatch=True),
        max_size=8,
    )
)
def test_escaped_properties_are_read_back(pairs: dict[str, str]) -> None:
    lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in pairs.items()]
    assert properties("\n".join(lines)) == pairs


@given(st.text(max_size=60))
def test_any_text_is_listeners_or_a_config_error(text: str) -> None:
    try:
        found = addresses(text)
    except ConfigError:
        return
    assert found


def test_a_broken_toml_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[broker]\nid = 1\n")
    with pytest.raises(ConfigError, match="quoted"):
        load(files=[tmp_path / "a.toml"])
    (tmp_path / "b.toml").write_text("what")
    with pytest.raises(ConfigError, match="not TOML"):
        load(files=[tmp_path / "b.toml"])
    with pytest.raises(ConfigError, match="cannot read"):
        load(files=[tmp_path / "missing.toml"])
