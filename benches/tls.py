"""What TLS costs a broker: krust beside Apache Kafka 3.9.1, with the same certificates.

    python benches/tls.py [--rounds 5]

Full handshakes (TLS 1.3; none is resumed) with keys on P-256 and RSA keys, and Produce and Fetch
of large batches, beside the same in plain text. The load is that of the `driver` program, which
does the other half of the cryptography on the other core (see `peers.py`, whose rules hold here).
krust is a release build. It is no test: it reports a missed target and does not fail.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import tempfile
from pathlib import Path

import figures
from peers import PRODUCE, Bench, Running, Scenario, Target, free_port, kafka, krust, pin, show

from tests.certificates import Authority

HANDSHAKES = ("handshakes", "--raw", "--requests", "1500")
SHOWN = ("handshakes_core_s", "p50_us", "p99_us")
LEAST = 300
"""full handshakes a second of one core"""
RATE = Target("handshakes_core_s", "kafka", 3, least=True)


@dataclasses.dataclass(frozen=True)
class Listeners:
    """The settings of a server, and where it listens beside plain text."""

    p256: int
    rsa: int
    settings: tuple[str, ...]


def listeners(authority: Authority, plain: str) -> Listeners:
    """Listeners with certificates on both kinds of keys; `plain` is the address of the first."""
    hosts = ("IP:127.0.0.1", "DNS:localhost")
    ports = free_port(), free_port()
    keys = authority.certify("p256", *hosts), authority.certify("rsa", *hosts, rsa=True)
    names = ",".join(
        f"{name}://127.0.0.1:{port}" for name, port in zip(("P256", "RSA"), ports, strict=True)
    )
    return Listeners(
        *ports,
        (
            f"listeners=PLAINTEXT://{plain},{names}",
            f"advertised.listeners=PLAINTEXT://{plain},{names}",
            "inter.broker.listener.name=PLAINTEXT",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,P256:SSL,RSA:SSL",
            "ssl.keystore.type=PEM",
            f"listener.name.p256.ssl.keystore.location={keys[0]}",
            f"listener.name.rsa.ssl.keystore.location={keys[1]}",
        ),
    )


def scenarios(authority: Authority) -> dict[str, tuple[Scenario, ...]]:
    """What is measured on each listener."""
    tls = ("--tls", str(authority.certificate))
    handshakes = Scenario("", (*HANDSHAKES, *tls), shows=SHOWN, targets=(RATE,))
    produce = Scenario("produce 1 MiB batches", ("produce", *PRODUCE))
    fetch = Scenario("fetch cached", ("fetch", *PRODUCE))

    def secured(scenario: Scenario, most: float) -> Scenario:
        return dataclasses.replace(
            scenario,
            name=f"{scenario.name}, TLS",
            driver=(*scenario.driver, *tls),
            targets=(Target("cpu_s_gb", "kafka", most),),
        )

    return {
        "rsa": (dataclasses.replace(handshakes, name="full handshakes, RSA-2048", targets=()),),
        "p256": (
            dataclasses.replace(handshakes, name="full handshakes, ECDSA P-256"),
            secured(produce, 0.4),
            secured(fetch, 0.5),
        ),
        "plain": (produce, fetch),
    }


def main() -> None:
    """Run all scenarios by turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        authority = Authority(Path(folder) / "authority")
        running: dict[str, dict[str, Running]] = {"plain": {}, "p256": {}, "rsa": {}}
        for name, plain, start in (
            ("krust", "127.0.0.1:0", krust),
            ("kafka", "{bootstrap}", kafka),
        ):
            place = Path(folder) / name
            place.mkdir()
            found = listeners(authority, plain)
            server = stack.enter_context(start(place, *found.settings))
            running["plain"][name] = server
            for kind, port in (("p256", found.p256), ("rsa", found.rsa)):
                running[kind][name] = dataclasses.replace(server, bootstrap=f"127.0.0.1:{port}")
            pin(server.pid, 0)
        bench = Bench(Path(folder), given.rounds)
        for kind, chosen in scenarios(authority).items():
            bench.servers = running[kind]
            for scenario in chosen:
                result = bench.run(scenario)
                print(show(scenario, result), flush=True)
                rate = result["medians"].get("krust", {}).get("handshakes_core_s")
                if rate is not None:
                    figures.say(
                        rate >= LEAST, f"{rate:,.0f} handshakes/s of a core, wanted {LEAST}"
                    )
        print(figures.load())


if __name__ == "__main__":
    main()
