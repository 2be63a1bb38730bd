"""Settings, requests and files name no code that krust then runs (`docs/security-record.md`).

Its own plug-ins, which settings in the broker's file name as `module:Class`, are the exception, and
they are imported in a process of their own.
"""

from __future__ import annotations

import ast
import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import krust
from krust import Admin, config, jaas
from krust.errors import ConfigError, KrustError
from krust.settings import BROKER, TOPIC, Type

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "python/krust").rglob("*.py"))
CALLS = {
    "builtins": {"eval", "exec", "compile", "__import__"},
    "pickle": {"load", "loads", "Unpickler"},
    "marshal": {"load", "loads"},
    "shelve": {"open"},
    "yaml": {"load", "load_all", "unsafe_load", "full_load", "Loader"},
    "os": {"system", "popen"},
    "importlib": {"import_module", "__import__"},
    "krust": {"import_quickly"},
    "importlib.util": {"spec_from_file_location", "module_from_spec"},
    "runpy": {"run_path", "run_module"},
}
"""What can run code that a text names or holds, by the module that has it."""
ALLOWED = {
    # Names of krust's own modules.
    ("__init__.py", "import_module"),
    ("__main__.py", "import_quickly"),
    ("cli/__init__.py", "import_quickly"),
    ("controller/apis.py", "import_module"),
    ("spark/__init__.py", "import_module"),
    ("spark/failures.py", "import_module"),
    # Plug-ins and transformations that the user's own files name.
    ("plugins.py", "import_module"),
    ("spark/recipe.py", "import_module"),
    ("spark/recipe.py", "spec_from_file_location"),
    ("spark/recipe.py", "module_from_spec"),
    # In the process of a plug-in: what the broker that started it made. The answer is JSON.
    ("plugin_process.py", "load"),
    ("plugin_worker.py", "loads"),
}


def running_code(source: str) -> Iterator[str]:
    """The names of CALLS that a source uses, however it imports them."""
    tree = ast.parse(source)
    modules: dict[str, str] = {}
    names: dict[str, str] = dict.fromkeys(CALLS["builtins"], "builtins")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in CALLS:
            for each in node.names:
                if each.name in CALLS[node.module]:
                    names[each.asname or each.name] = node.module
                    yield each.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and names.get(node.id) == "builtins":
            yield node.id
        if isinstance(node, ast.Attribute):
            place = modules.get(ast.unparse(node.value), ast.unparse(node.value))
            if node.attr in CALLS.get(place, ()):
                yield node.attr
        if isinstance(node, ast.keyword) and node.arg == "shell":
            yield "shell"


def test_cve_2023_25194_no_source_runs_code_that_a_text_names() -> None:
    found = {
        (str(path.relative_to(ROOT / "python/krust")), name)
        for path in SOURCES
        for name in running_code(path.read_text())
    }
    assert len(SOURCES) > 200
    assert found == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "import pickle as p\np.loads(b'')",
        "from pickle import loads as f",
        "import yaml\nyaml.load('')",
        "eval('1')",
        "f = exec",
        "import importlib\nimportlib.import_module('x')",
        "from importlib import util, import_module",
        "import importlib.util\nimportlib.util.module_from_spec(x)",
        "import subprocess\nsubprocess.run('x', shell=True)",
    ],
)
def test_code_that_a_source_would_run_is_found(source: str) -> None:
    assert list(running_code(source))


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `canary_code`, and the file that it writes when it is imported anywhere."""
    written = tmp_path / "imported"
    folder = tmp_path / "modules"
    folder.mkdir()
    lines = ["from pathlib import Path", f"Path({str(written)!r}).touch()", "class Canary: ..."]
    (folder / "canary_code.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield written
    sys.modules.pop("canary_code", None)


NAMES = ("canary_code", "canary_code.Canary", "canary_code:Canary")
PLUG_INS = {
    "authorizer.class.name",
    "group.consumer.assignors",
    "krust.group.server.assignor",
    "krust.retention.policy",
    "replica.selector.class",
}
"""The settings of the broker's file that name plug-ins of the user's."""
TEXTS = (Type.STRING, Type.LIST, Type.CLASS, Type.PASSWORD)
GIVEN = {"listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect"}


@pytest.mark.parametrize("value", NAMES)
def test_cve_2023_25194_no_setting_of_a_broker_names_code(canary: Path, value: str) -> None:
    taken: dict[str, object] = {}
    for name, setting in BROKER.items():
        if setting.type in TEXTS and name not in PLUG_INS | GIVEN:
            with contextlib.suppress(ConfigError):
                config.load(options={name: value})
                taken[name] = value
    words = ("class", "provider", "reporter")  # the others are files, addresses and secrets
    classes = {name: text for name, text in taken.items() if any(word in name for word in words)}
    assert "metric.reporters" in classes
    with krust.Broker(config=classes) as broker:
        broker.create_topic("t", 1)
    assert not canary.exists()
    assert "canary_code" not in sys.modules


def test_the_canary_sings(canary: Path) -> None:
    __import__("canary_code")
    assert canary.exists()


@pytest.mark.parametrize("value", [*NAMES, "*=canary_code:Canary"])
def test_cve_2023_25194_no_request_names_code(canary: Path, value: str) -> None:
    """Not even a plug-in: only the broker's own file may."""
    with (
        krust.Broker() as broker,
        Admin({"bootstrap.servers": broker.bootstrap}) as admin,
    ):
        broker.create_topic("t", 1)
        places = [(4, "0", BROKER), (4, "", BROKER), (2, "t", TOPIC)]
        for kind, resource, settings in places:
            for name, setting in settings.items():
                if setting.type not in TEXTS:
                    continue
                changed = {"name": name, "config_operation": 0, "value": value}
                where = {"resource_type": kind, "resource_name": resource, "configs": [changed]}
                asked = {"resources": [where], "validate_only": False}
                [answer] = admin.request("IncrementalAlterConfigs", asked)["responses"]
                assert answer["error_code"] or name not in PLUG_INS, name
        with krust.Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            producer.send("t", b"x").result(60_000)
    assert not canary.exists()


CLIENT_CLASSES = (
    "interceptor.classes",
    "key.deserializer",
    "key.serializer",
    "metric.reporters",
    "partition.assignment.strategy",
    "partitioner.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "security.providers",
    "ssl.engine.factory.class",
)


@pytest.mark.parametrize("name", CLIENT_CLASSES)
@pytest.mark.parametrize("kind", [Admin, krust.Producer, krust.Consumer])
def test_cve_2023_25194_no_setting_of_a_client_names_code(
    canary: Path, name: str, kind: type[Admin]
) -> None:
    for value in NAMES:
        with contextlib.suppress(KrustError):
            kind({"bootstrap.servers": "127.0.0.1:1", name: value}).close()
    assert not canary.exists()


MODULES = {
    "CVE-2023-25194": "com.sun.security.auth.module.JndiLoginModule",
    "CVE-2025-27818": "com.sun.security.auth.module.LdapLoginModule",
}


@pytest.mark.parametrize("cve", MODULES)
def test_cve_2023_25194_cve_2025_27818_no_login_module_connects_anywhere(cve: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.setblocking(False)
        url = f"ldap://127.0.0.1:{port}/dc=example"
        text = (
            f'{MODULES[cve]} required user.provider.url="{url}" group.provider.url="{url}" '
            f'userProvider="{url}" useFirstPass="true";'
        )
        with pytest.raises(ConfigError, match="there is no login module"):
            jaas.parse(text)
        client: dict[str, object] = {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": text,
        }
        for kind in (Admin, krust.Producer, krust.Consumer):
            with pytest.raises(ConfigError):
                kind(client)
        broker: dict[str, object] = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": text,
        }
        with pytest.raises(ConfigError):
            krust.Broker(config=broker)
        with pytest.raises(BlockingIOError):
            server.accept()
