"""A group may have a heartbeat interval and a session timeout of its own."""

from krust.messages import Message
from tests.unit.coordinator.consuming import ConsumerBench


def test_members_of_a_group_with_its_own_timing_get_it_and_a_change_reaches_them() -> None:
    own: dict[str, tuple[int, int]] = {"g": (6000, 50_000)}
    bench = ConsumerBench(timing_of=own.get)
    event = bench.heartbeat_event("m", 0, subscribed_topic_names=["t"], topic_partitions=[])
    bench.batch(event)
    assert bench.answers[event.ticket]["heartbeat_interval_ms"] == 6000
    snapshot = bench.snapshots["g"]
    assert snapshot is not None
    assert snapshot["heartbeat_interval_ms"] == 6000
    assert snapshot["members"]["m"]["session_timeout_ms"] == 50_000
    own["g"] = (7000, 55_000)
    bench.coordinator.on_configs_changed(["g", "nobody"])
    snapshots: list[tuple[str, Message | None]] = [*bench.batch().snapshots]
    ((name, changed),) = snapshots
    assert changed is not None
    assert (name, changed["heartbeat_interval_ms"]) == ("g", 7000)
    assert changed["members"]["m"]["session_timeout_ms"] == 55_000
    own.clear()
    bench.coordinator.on_configs_changed(["g"])
    snapshots = [*bench.batch().snapshots]
    ((_, back),) = snapshots
    assert back is not None
    assert (back["heartbeat_interval_ms"], back["members"]["m"]["session_timeout_ms"]) == (
        5000,
        45_000,
    )
