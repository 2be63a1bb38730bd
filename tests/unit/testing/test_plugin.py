"""The pytest plugin, run inside a pytest of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_fixtures_serve_a_broker_a_topic_a_factory_and_a_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import socket
        seen = set()

        def reach(broker):
            host, _, port = broker.bootstrap.rpartition(":")
            socket.create_connection((host, int(port)), 60).close()

        def test_one(krust_broker, krust_topic):
            reach(krust_broker)
            assert krust_topic in krust_broker.topics()
            seen.add((krust_broker.bootstrap, krust_topic))

        def test_two(krust_broker, krust_topic):
            assert krust_topic in krust_broker.topics()
            seen.add((krust_broker.bootstrap, krust_topic))
            assert len({b for b, _ in seen}) == 1, "one broker a run"
            assert len({t for _, t in seen}) == 2, "a topic a test"

        def test_own(krust_broker, krust_factory):
            own = krust_factory(config={"num.partitions": 3})
            assert own.bootstrap != krust_broker.bootstrap
            reach(own)

        def test_killed(krust_cluster):
            krust_cluster.kill(1)
            assert sorted(krust_cluster.brokers) == [0, 2]
            reach(krust_cluster.start(1))
        """
    )
    pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=4)


def test_a_mark_gives_the_cluster_of_a_test_its_brokers_topics_and_settings(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.krust(
            brokers=2, topics={"orders": 4}, replication_factor=2, config={"min.insync.replicas": 2}
        )
        def test_marked(krust_cluster):
            assert sorted(krust_cluster.brokers) == [0, 1]
            assert {krust_cluster.replicas("orders", n) for n in range(4)} == {(0, 1), (1, 0)}
            assert krust_cluster.brokers[0].config["min.insync.replicas"] == 2

        @pytest.mark.krust(broker=2)
        def test_misspelt(krust_cluster):
            pass
        """
    )
    done = pytester.runpytest_subprocess("-q", "--strict-markers", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*unexpected keyword argument 'broker'*"])


def test_a_secured_broker_of_a_test_has_users_with_and_without_acls(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("cryptography")
    pytester.makepyfile(
        """
        import krust, pytest

        def test_alice(krust_secure_broker):
            with krust.Producer(krust_secure_broker.client_settings("alice")) as producer:
                producer.send("orders", b"paid").result(60_000)

        @pytest.mark.krust(
            secure=krust.Security(users={"app": None}, acls_for_users=False), topics={"orders": 1}
        )
        def test_denied(krust_secure_broker):
            app = krust.Producer(krust_secure_broker.client_settings("app"), acks=1)
            with app, pytest.raises(krust.KafkaError, match="(?i)authoriz"):
                app.send("orders", b"paid").result(60_000)

        @pytest.mark.krust(brokers=2, secure=True)
        def test_cluster(krust_cluster):
            with krust.Producer(krust_cluster.client_settings("bob")) as producer:
                producer.send("orders", b"paid").result(60_000)
        """
    )
    pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_the_topic_of_a_parametrised_test_has_a_legal_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import re, pytest

        @pytest.mark.parametrize("word", ["a/b c", "é" * 300])
        def test_name(krust_topic, word):
            assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", krust_topic)
        """
    )
    pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_the_plugin_imports_no_module_before_its_use() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules)\n"
        "import krust.testing.plugin\n"
        "print(*sorted(sys.modules.keys() - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {"krust", "krust.testing", "krust.testing.plugin"}
