"""The store in a ZooKeeper over TLS, with certificates made here."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from krust.config import load
from krust.errors import ConfigError, ServerError
from krust.metadata.ensemble import Ensemble, Tls
from krust.metadata.store import Create, Created, MultiResult
from krust.metadata.zookeeper import ZooKeeperStore, open_store
from krust.runtime import metadata
from tests.certificates import Authority
from tests.peers import zookeeper as peer
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.java

FACTORY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


class Secured(NamedTuple):
    """A ZooKeeper that wants to see a certificate."""

    connect: str
    folder: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if reason := peer.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder, "ca")
    Authority(folder, "other")
    server = authority.certify("server", "IP:127.0.0.1")
    authority.certify("client", "DNS:krust")
    port = free_port()
    lines = [
        f"serverCnxnFactory={FACTORY}",
        f"secureClientPort={port}",
        "secureClientPortAddress=127.0.0.1",
        f"ssl.keyStore.location={server}",
        f"ssl.trustStore.location={authority.certificate}",
        "ssl.clientAuth=need",
    ]
    with peer.running(folder / "zk", 1, *lines):
        yield Secured(f"127.0.0.1:{port}", folder)


def opened(secured: Secured, tls: Tls | None, patience_ms: int = 60_000) -> ZooKeeperStore:
    place = f"{secured.connect}/tls"
    return open_store(Ensemble(place, peer.LONG_MS, connection_timeout_ms=patience_ms, tls=tls))


def made(store: ZooKeeperStore) -> bool:
    store.submit([Create("/n", b"1", ephemeral=True)], None)
    done = until(lambda: [each for each in store.events() if isinstance(each, MultiResult)])
    return isinstance(done[0].results[0], Created)


def test_a_client_with_a_certificate_is_accepted(secured: Secured) -> None:
    own = str(secured.folder / "client.pem")
    with closing(opened(secured, Tls(str(secured.folder / "ca.pem"), own))) as store:
        assert made(store)


@pytest.mark.parametrize(
    ("ca", "own"), [("other.pem", "client.pem"), ("ca.pem", None), (None, "client.pem")]
)
def test_a_client_without_a_certificate_is_refused(
    secured: Secured, ca: str | None, own: str | None
) -> None:
    trusted, shown = (str(secured.folder / name) if name else None for name in (ca, own))
    with pytest.raises(ServerError, match="no ZooKeeper answers"):
        opened(secured, Tls(trusted, shown), patience_ms=1500)


def test_files_without_certificates_are_named(secured: Secured) -> None:
    for tls in (
        Tls(str(secured.folder / "nowhere.pem")),
        Tls(None, str(secured.folder / "client.ext")),
    ):
        with pytest.raises(ConfigError, match="cannot be read"):
            opened(secured, tls)


def test_kafkas_settings_configure_tls(secured: Secured) -> None:
    options = {
        "zookeeper.connect": f"{secured.connect}/settings",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(secured.folder / "ca.pem"),
        "zookeeper.ssl.keystore.location": str(secured.folder / "client.pem"),
    }
    found = metadata.open_metadata(load(options=options), (), lambda: None)
    assert found.store.session
    found.close()
    options["zookeeper.ssl.keystore.location"] = "/etc/kafka/keystore.jks"
    with pytest.raises(ConfigError, match=r"keystore\.jks is no PEM file"):
        metadata.open_metadata(load(options=options), (), lambda: None)
