"""`Broker(secure=True)` and `Cluster(secure=True)`: TLS, logins and ACLs for the tests of users."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

import krust
from krust import security
from krust.errors import Code, ConfigError, KafkaError, KrustError, ServerError
from tests.leftovers import nothing_left

pytest.importorskip("cryptography")

WAIT_MS = 60_000
NOTHING = krust.Security(users={"app": None, "bob": "bob's secret"}, acls_for_users=False)
DENIED = {Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED}
"""the second one if a producer is idempotent and may write to no topic"""
READS = krust.Acl(principal="User:app", operation="Read", resource_type="Topic", name="orders")


def refused(settings: dict[str, object], topic: str) -> Code | None:
    """Why a producer's record is refused; None: it is taken."""
    with krust.Producer(settings, delivery_timeout_ms=WAIT_MS) as producer:
        try:
            producer.send(topic, b"x").result(WAIT_MS)
        except KafkaError as error:
            return Code(error.code or 0)
    return None


def test_users_may_use_topics_groups_and_transactions_and_not_change_the_cluster() -> None:
    with krust.Broker(secure=True) as broker:
        assert list(broker.users) == ["admin", "alice", "bob"]
        assert len({*broker.users.values()}) == 3
        alice, bob = (broker.client_settings(name) for name in ("alice", "bob"))
        krust.Admin(alice).create_topic("orders", partitions=1)
        with (
            krust.Producer(bob, transactional_id="t") as producer,
            producer.transaction(),
        ):
            producer.send("orders", b"paid")
        words = broker.client_settings("alice", "kafka-python", group_id="g")
        with krust.Consumer("orders", **words, auto_offset_reset="earliest") as consumer:
            found = consumer.poll(WAIT_MS)
            consumer.commit()
        assert [record.value for record in found] == [b"paid"]
        with pytest.raises(KafkaError) as told:
            krust.Admin(alice).create_acls([READS])
        assert told.value.code == Code.CLUSTER_AUTHORIZATION_FAILED
        assert len(krust.Admin(broker.client_settings()).describe_acls()) == 12


def test_without_acls_a_user_may_do_what_the_test_allows_and_no_more() -> None:
    with krust.Broker(secure=NOTHING) as broker:
        broker.create_topic("orders")
        app = broker.client_settings("app")
        assert refused(app, "orders") in DENIED
        krust.Admin(broker.client_config()).create_acls([READS])
        with krust.Consumer(app) as consumer:
            consumer.assign([("orders", 0, 0)])
            assert refused(broker.client_settings("admin"), "orders") is None
            assert [record.value for record in consumer.poll(WAIT_MS)] == [b"x"]
        assert refused(app, "orders") in DENIED
        assert refused(broker.client_settings("bob"), "orders") in DENIED


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_and_a_client_without_one_do_not_get_in(mechanism: str) -> None:
    with krust.Broker(secure=True) as broker:
        settings = broker.client_settings("alice", sasl_mechanism=mechanism)
        assert refused(settings, "t") is None
        with pytest.raises(KafkaError, match=r"(?i)authentication failed"):
            krust.Admin({**settings, "sasl.password": "guess"}).topics()
        with pytest.raises(KrustError):
            krust.Admin(bootstrap_servers=broker.bootstrap, request_timeout_ms=500).topics()
        other = {**settings, "ssl.ca.location": None}
        with pytest.raises(KrustError):
            krust.Admin(other, request_timeout_ms=500).topics()


def test_the_brokers_own_calls_need_no_settings() -> None:
    with krust.Broker(secure=True) as broker:
        broker.create_topic("t")
        assert refused(broker.client_settings("alice"), "t") is None
        assert [record.value for record in broker.records("t")] == [b"x"]
        assert len(list(broker.scan("t"))) == 1
        broker.kill()
        broker.start()
        assert refused(broker.client_settings("alice"), "t") is None
        assert len(broker.records("t")) == 2


def test_users_certificates_and_revoked_acls_stay_with_a_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with krust.Broker(data, secure=True) as broker:
        users, folder = broker.users, broker.security_dir
        assert folder == tmp_path / "data-security"
        kept = (folder / "ca.pem").read_bytes()
        admin = krust.Admin(broker.client_settings())
        admin.delete_acls(principal="User:bob")
        assert json.loads((folder / "secure.json").read_text())["users"] == users
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    more = krust.Security(users={"alice": "another", "carl": None})
    with krust.Broker(data, secure=more) as broker:
        assert (folder / "ca.pem").read_bytes() == kept
        assert broker.users == {**users, "alice": "another", "carl": broker.users["carl"]}
        assert refused(broker.client_settings("alice"), "t") is None
        assert refused(broker.client_settings("carl"), "t") is None
        assert refused(broker.client_settings("bob"), "t") in DENIED
    (folder / "secure.json").write_text("{")
    with pytest.raises(ServerError, match=r"secure\.json cannot be read") as told:
        krust.Broker(data, secure=True)
    assert "remove it" in str(told.value.hint)


def test_a_cluster_replicates_between_brokers_that_log_in_at_each_other() -> None:
    with krust.Cluster(3, secure=True) as cluster:
        cluster.create_topic("t", 3, replication_factor=3)
        alice = cluster.client_settings("alice")
        assert refused(alice, "t") is None
        cluster.kill(cluster.leader("t", 0))
        assert refused({**alice, "bootstrap.servers": cluster.bootstrap}, "t") is None
        for number in range(3):
            cluster.start(number)
        cluster.wait_in_sync("t")
        listeners = dict(cluster.brokers[0].listeners)
        inside = {**alice, "bootstrap.servers": listeners["BROKERS"], "sasl.mechanism": "PLAIN"}
        with pytest.raises(KafkaError, match=r"(?i)authentication failed"):
            krust.Admin(inside).topics()


def test_settings_of_the_test_win_except_those_of_listeners() -> None:
    config = {"num.partitions": 4, "super.users": "User:bob"}
    with krust.Broker(config=config, secure=NOTHING) as broker:
        assert broker.config["num.partitions"] == 4
        assert refused(broker.client_settings("bob"), "t") is None
    with pytest.raises(ConfigError, match="listeners was given"):
        krust.Broker(config={"listeners": "PLAINTEXT://:0"}, secure=True)
    with krust.Broker() as plain, pytest.raises(ConfigError, match="has no users"):
        plain.client_settings("alice")
    with krust.Broker(secure=True) as broker, pytest.raises(ConfigError, match="not 'eve'"):
        broker.client_settings("eve")


def test_nothing_is_left_of_a_secured_broker() -> None:
    with krust.Broker(secure=True):
        pass  # what is loaded once
    with nothing_left(), krust.Broker(secure=True) as broker:
        folder = broker.security_dir
        assert folder is not None
        assert (folder / "client.properties").exists()
    assert not folder.exists()
    with krust.Cluster(1, secure=True) as cluster:
        folder = cluster.security_dir
    assert folder is not None
    assert not folder.exists()


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "krust.security.authority", raising=False)
    monkeypatch.delattr(security, "authority", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match="no package cryptography") as told:
        krust.Broker(secure=True)
    assert "pip install" in str(told.value.hint)
