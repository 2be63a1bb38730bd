"""Options of `format("krust")`: the official names and defaults; errors with a hint."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from krust.clients import options as clients
from krust.spark import client_options, options
from krust.spark.errors import OptionError
from krust.spark.options import BATCH, OPTIONS, SINK, STREAM
from krust.spark.plan import EARLIEST, LATEST, ReadBound

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def read(mode: str = BATCH, **more: str) -> options.SourceOptions:
    return options.source({**BASE, **{k.replace("__", "."): v for k, v in more.items()}}, mode)


def refused(mode: str = BATCH, **more: str) -> str:
    with pytest.raises(OptionError) as caught:
        read(mode, **more)
    return str(caught.value)


def test_options_have_defaults() -> None:
    found = read()
    assert found.bootstrap == "h:1"
    assert (found.starting, found.ending) == (ReadBound(EARLIEST), ReadBound(LATEST))
    assert read(STREAM).starting == ReadBound(LATEST)
    assert found.fail_on_data_loss
    assert not found.headers
    assert (found.retries, found.retry_ms, found.max_delay_ms) == (3, 1000, 900_000)
    assert not found.read_committed
    assert pickle.loads(pickle.dumps(found)) == found


def test_option_names_are_case_insensitive() -> None:
    given = {"KAFKA.Bootstrap.Servers": " h:1 ", "SUBSCRIBE": "b , a,", "failondataloss": "FALSE"}
    found = options.source(given, BATCH)
    assert found.topics.subscribe == ("a", "b")
    assert not found.fail_on_data_loss


def test_bootstrap_servers_as_clients_spell_it() -> None:
    assert options.source({"bootstrap.servers": "h:1", "subscribe": "t"}, BATCH).bootstrap == "h:1"


def test_subscribe_pattern_and_assign_are_parsed() -> None:
    base = {"kafka.bootstrap.servers": "h:1"}
    found = options.source({**base, "assign": '{"t":[1,0]}'}, BATCH)
    assert found.topics.assign == (("t", 0), ("t", 1))
    assert options.source({**base, "subscribePattern": "a.*"}, BATCH).topics.pattern == "a.*"
    for wrong in ({}, {"subscribe": "a", "assign": "{}"}, {"subscribe": " , "}, {"assign": "{}"}):
        with pytest.raises(OptionError, match=r"(?s)'(subscribe|assign)'.*[Ww]rite"):
            options.source({**base, **wrong}, BATCH)
    with pytest.raises(OptionError, match=r"subscribePattern.*regular expression"):
        options.source({**base, "subscribePattern": "a("}, BATCH)


def test_java_patterns_are_translated() -> None:
    assert re.search(options.python_pattern(r"^\Qa.b\E-(?<n>\d+)\z"), "a.b-12")
    assert not re.search(options.python_pattern(r"^\Qa.b\E"), "axb")


def test_starting_timestamp_overrides_timestamps_which_override_offsets() -> None:
    more = {"startingOffsets": "earliest"}
    assert read(**more).starting == ReadBound(EARLIEST)
    more["startingOffsetsByTimestamp"] = '{"t":{"0":5}}'
    assert read(**more).starting == ReadBound(times={("t", 0): 5})
    more["startingTimestamp"] = "7"
    assert read(**more).starting == ReadBound(time=7)
    more["startingOffsetsByTimestampStrategy"] = "LATEST"
    assert read(**more).starting == ReadBound(time=7, or_end=True)
    assert read(endingTimestamp="9").ending == ReadBound(time=9, or_end=True)


def test_offsets_are_parsed_from_json() -> None:
    found = read(startingOffsets='{"t":{"0":3,"1":-2}}', endingOffsets='{"t":{"0":-1,"1":9}}')
    assert found.starting.offsets == {("t", 0): 3, ("t", 1): -2}
    assert found.ending.offsets == {("t", 0): -1, ("t", 1): 9}


@pytest.mark.parametrize(
    ("mode", "name", "value"),
    [
        (BATCH, "startingOffsets", "latest"),
        (BATCH, "startingOffsets", '{"t":{"0":-1}}'),
        (BATCH, "startingOffsets", '{"t":{"0":-3}}'),
        (BATCH, "startingOffsets", "yesterday"),
        (BATCH, "endingOffsets", "earliest"),
        (BATCH, "endingOffsets", '{"t":{"0":-2}}'),
        (BATCH, "startingTimestamp", "now"),
        (BATCH, "startingTimestamp", "-1"),
        (BATCH, "startingOffsetsByTimestamp", '{"t":{"0":-4}}'),
        (BATCH, "startingOffsetsByTimestampStrategy", "earliest"),
        (BATCH, "failOnDataLoss", "no"),
        (BATCH, "includeHeaders", ""),
        (BATCH, "minPartitions", "0"),
        (BATCH, "minPartitions", "1.5"),
        (BATCH, "maxRecordsPerPartition", "-1"),
        (BATCH, "kafka.isolation.level", "serializable"),
        (BATCH, "kafka.security.protocol", "TLS"),
        (STREAM, "maxOffsetsPerTrigger", "x"),
        (STREAM, "maxTriggerDelay", "1 fortnight"),
        (STREAM, "maxTriggerDelay", ""),
    ],
)
def test_an_invalid_value_names_its_option_and_the_valid_ones(
    mode: str, name: str, value: str
) -> None:
    text = refused(mode, **{name.replace(".", "__"): value})
    assert text.startswith("[KRUST_INVALID_OPTION] Option '" + name)
    assert f'.option("{name}", ' in text


@pytest.mark.parametrize(
    ("mode", "name", "value"),
    [
        (STREAM, "endingOffsets", "latest"),
        (STREAM, "endingTimestamp", "5"),
        (BATCH, "kafka.auto.offset.reset", "earliest"),
        (BATCH, "kafka.enable.auto.commit", "true"),
        (BATCH, "kafka.key.deserializer", "x"),
        (STREAM, "kafka.interceptor.classes", "x"),
        (STREAM, "kafka.sasl.kerberos.service.name", "kafka"),
        (BATCH, "rows", "metadata"),
        (BATCH, "valueFormat", "json"),
    ],
)
def test_contradicting_options_are_refused(mode: str, name: str, value: str) -> None:
    text = refused(mode, **{name.replace(".", "__"): value})
    assert text.startswith(f"[KRUST_UNSUPPORTED_OPTION] Option '{name}' is not supported")


def test_passed_on_options_are_settings_of_the_clients() -> None:
    assert clients.COMMON - {clients.BOOTSTRAP} == client_options.CLIENT
    assert clients.FETCH - {clients.BOOTSTRAP} == client_options.CONSUMER
    assert client_options.PRODUCER < clients.PRODUCER


def test_log_directories_need_no_brokers(tmp_path: Path) -> None:
    found = options.source({"subscribe": "t", "logDir": f"{tmp_path}, file://{tmp_path}"}, BATCH)
    assert found.log_dirs == (str(tmp_path), str(tmp_path))
    assert found.bootstrap == ""
    assert "'/no/such/folder' does not exist on this machine" in refused(
        BATCH, logDir="/no/such/folder"
    )
    with pytest.raises(OptionError, match=r"'kafka.bootstrap.servers' is needed"):
        options.source({"subscribe": "t", "logDir": str(tmp_path), "groupId": "g"}, STREAM)


def test_a_misspelt_option_is_an_error() -> None:
    assert "Write 'startingOffsets'" in refused(startingOffset="earliest")
    assert "Write 'failOnDataLoss'" in refused(fail_on_data_loss="false")


def test_an_unknown_option_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    found = read(**{"colour": "red", "kafka.max.poll.records": "5", "kafka.fetch.min.bytes": "9"})
    assert found.client == {"fetch.min.bytes": "9"}
    assert "no option 'colour'" in caplog.text
    assert "'kafka.max.poll.records' has no effect" in caplog.text


def test_an_option_without_effect_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    read(maxOffsetsPerTrigger="5", **{"kafka.group.id": "g"})
    logged = " ".join(record.getMessage() for record in caplog.records)
    assert "'maxOffsetsPerTrigger' has no effect on a batch read" in logged
    assert '.option("groupId", "g")' in logged


def test_limits_of_a_trigger_are_parsed() -> None:
    found = read(STREAM, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay="2m")
    assert (found.min_offsets_per_trigger, found.max_offsets_per_trigger) == (5, 9)
    assert found.max_delay_ms == 120_000
    assert "'minOffsetsPerTrigger' cannot be '10'" in refused(
        STREAM, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9"
    )


@pytest.mark.parametrize(
    ("text", "ms"), [("5", 5), ("5ms", 5), ("1 s", 1000), ("15M", 900_000), ("1d", 86_400_000)]
)
def test_times_are_parsed_as_in_spark(text: str, ms: int) -> None:
    assert read(STREAM, maxTriggerDelay=text).max_delay_ms == ms


def test_batches_start_before_they_end() -> None:
    text = refused(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":3}}')
    assert "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET" in text
    text = refused(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"1":3}}')
    assert "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET" in text
    read(startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":-1}}')


def write(**more: str) -> options.SinkOptions:
    given = {"kafka.bootstrap.servers": "h:1", **{k.replace("__", "."): v for k, v in more.items()}}
    return options.sink(given)


def test_options_of_the_sink_are_parsed() -> None:
    found = write(topic=" t ", kafka__linger__ms="5", compression="ZSTD")
    assert (found.topic, found.keep_timestamp, found.keep_partition) == ("t", False, True)
    assert found.client == {"linger.ms": "5", "compression.type": "zstd"}
    assert write().topic is None
    assert write(exactlyOnce="false").topic is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("jobId", "a:b", "letters, digits"),
        ("kafka.transactional.id", "x", "derives it from the query"),
        ("kafka.value.serializer", "x", "not supported"),
        ("compression", "lzma", "one of none, gzip, snappy, lz4, zstd"),
        ("keepTimestamp", "maybe", "true or false"),
        ("partitioner", "random", "murmur2"),
        ("topik", "t", "Write 'topic'"),
    ],
)
def test_the_sink_refuses_invalid_options(name: str, value: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        write(**{name: value})


def test_missing_bootstrap_servers_are_an_error() -> None:
    for call in (lambda: options.sink({}), lambda: options.headers_wanted({"subscribe": "t"})):
        with pytest.raises(OptionError, match=r"kafka.bootstrap.servers.*localhost:9092"):
            call()


def test_the_table_has_each_name_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    assert {mode for option in OPTIONS for mode in option.used} == {BATCH, STREAM, SINK}


def test_the_source_writes_files_if_a_path_is_given() -> None:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "path": "/lake/t"}
    given = base | {"materialize": "Parquet", "fileMegabytes": "3", "fileJob": "me"}
    found = options.source(given | {"valueFormat": "json", "valueSchema": "id int"}, options.STREAM)
    assert found.target is not None
    assert (found.target.file_bytes, found.file_job) == (3 << 20, "me")
    assert found.target.columns is not None
    assert found.target.columns[0] == "value"
    assert options.materializes(given)
    assert not options.materializes(base)
    for more in (
        {"materialize": "orc"},
        {"materialize": "parquet", "path": "s3://lake/t"},
        {"materialize": "parquet", "valueFormat": "json"},
        {"materialize": "parquet", "fileMegabytes": "many"},
    ):
        with pytest.raises(OptionError):
            options.source(base | more, options.STREAM)
