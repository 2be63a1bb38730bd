"""The tests of the `rdkafka` crate (librdkafka from Rust), built out of cargo's registry.

Its librdkafka is built without OpenSSL, so it uses a plain listener alone. Left out:
`test_base_producer_timeout`, which fails now and then with Kafka too;
`test_populate_topic`, a helper that is compiled into every binary.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.outcomes import from_cargo

if TYPE_CHECKING:
    from tests.conformance.access import Access

VERSION = "0.39.0"
SETTINGS = {"num.partitions": "3"}
NEEDS = ("cargo", "cmake")
PORT = 9092  # test_metadata asks for it
ONE_BROKER = ("test_metadata::test_metadata",)  # it counts them
TESTS = (
    "test_base_producer_headers",
    "test_base_producer_opaque_arc",
    "test_base_producer_queue_full",
    "test_client_config",
    "test_configs",
    "test_consume_partition_order",
    "test_consumer_commit_message",
    "test_consumer_commit_metadata",
    "test_consumer_store_offset_commit",
    "test_custom_partitioner_base_producer",
    "test_custom_partitioner_threaded_producer",
    "test_delete_records",
    "test_event_errors",
    "test_fatal_errors",
    "test_fmt_debug",
    "test_future_producer_send",
    "test_future_producer_send_fail",
    "test_future_producer_send_full",
    "test_future_undelivered",
    "test_group_membership",
    "test_groups",
    "test_invalid_consumer_position",
    "test_invalid_max_poll_interval",
    "test_metadata",
    "test_pause_resume_consumer_iter",
    "test_produce_consume_base",
    "test_produce_consume_base_assign",
    "test_produce_consume_base_concurrent",
    "test_produce_consume_base_incremental_assign_and_unassign",
    "test_produce_consume_base_unassign",
    "test_produce_consume_iter",
    "test_produce_consume_message_queue_nonempty_callback",
    "test_produce_consume_seek",
    "test_produce_consume_seek_partitions",
    "test_produce_consume_with_timestamp",
    "test_register_custom_partitioner_linger_non_zero_key_null",
    "test_subscription",
    "test_threaded_producer_send",
    "test_topics",
    "test_transaction_abort",
    "test_transaction_commit",
)
_WANTING = f"""[package]
name = "wants-rdkafka"
version = "0.0.0"
edition = "2021"
[lib]
path = "empty.rs"
[dependencies]
rdkafka = "={VERSION}"
"""


def prepare(cache: Path) -> None:
    """Fetch the crate, copy its sources and build its tests."""
    want = cache / "want"
    want.mkdir(exist_ok=True)
    (want / "Cargo.toml").write_text(_WANTING)
    (want / "empty.rs").touch()
    subprocess.run(["cargo", "fetch", "--quiet"], cwd=want, check=True)
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    fetched = next(home.glob(f"registry/src/*/rdkafka-{VERSION}"))
    source = cache / "source"
    shutil.copytree(fetched, source, dirs_exist_ok=True)
    _cargo(source, "--no-run", check=True)


def run(cache: Path, access: Access) -> dict[str, bool]:
    """Run the tests."""
    environment = {"KAFKA_HOST": access.bootstrap, "KAFKA_VERSION": "3.9.1"}
    tail = ("--no-fail-fast", "--", "--test-threads=2", "--exact", *TESTS)
    done = _cargo(cache / "source", *tail, environment=environment)
    outcomes = from_cargo(done.stdout)
    if not all(outcomes.values()):
        print(done.stdout[-4000:])
    return outcomes


def _cargo(
    source: Path, *tail: str, environment: dict[str, str] | None = None, check: bool = False
) -> subprocess.CompletedProcess[str]:
    command = ["cargo", "test", "--test", "test_*", *tail]
    # Its own target folder and no workspace: it is somebody else's crate.
    whole = {**os.environ, "CARGO_TARGET_DIR": str(source / "target"), **(environment or {})}
    return subprocess.run(
        command,
        cwd=source,
        env=whole,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=check,
    )
