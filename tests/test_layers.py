"""The tables of layers are the architecture: think hard before you change them. A file imports only
from lower layers, in its own layer only inside its own module; the limits keep every file readable
in one sitting."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import import_graph, planted, planted_replication, planted_transactions

ROOT = Path(__file__).parents[1]
RUST, PYTHON = ROOT / "rust/src", ROOT / "python/krust"
NATIVE = ROOT / "rust/py/src"  # the crate above the core's highest layer

RUST_LAYERS = {
    **dict.fromkeys(("wire", "clock", "ids", "memory", "sys", "work"), 0),
    **dict.fromkeys(("record",), 1),
    **dict.fromkeys(("storage", "protocol", "transport"), 2),
    **dict.fromkeys(("client",), 3),
    **dict.fromkeys(("broker", "columns"), 4),
    **dict.fromkeys(("net", "fetcher", "inter_broker"), 5),
}
PYTHON_LAYERS = {
    "named_tuple": -1,
    **dict.fromkeys(
        ("__version__", "_krust", "closing", "errors", "settings", "offset_range", "quantities"), 0
    ),
    **dict.fromkeys(("foreign", "import_quickly", "messages", "properties"), 0),
    **dict.fromkeys(("issuers", "jaas", "listeners"), 1),
    **dict.fromkeys(("authorizer", "password_encoder", "principals", "sasl"), 2),
    **dict.fromkeys(("config", "plugins"), 3),
    **dict.fromkeys(("metadata", "plugin_process"), 4),
    **dict.fromkeys(("controller", "coordinator", "decode", "plugin_worker"), 5),
    **dict.fromkeys(("replica_selectors", "retention"), 5),
    **dict.fromkeys(("clients", "runtime"), 6),
    **dict.fromkeys(("frames", "security", "spark"), 7),
    **dict.fromkeys(("server",), 8),
    **dict.fromkeys(("cluster",), 9),
    **dict.fromkeys(("cli", "testing"), 10),
    **dict.fromkeys(("__main__",), 11),
}


# The layers of files in the import graph; where a folder has layers of its own, of its parts.
GRAPH_LAYERS: dict[str, tuple[int, ...]] = {
    f"rust/src/{module}": (layer,) for module, layer in RUST_LAYERS.items()
}
GRAPH_LAYERS |= {f"python/krust/{module}": (layer,) for module, layer in PYTHON_LAYERS.items()}
GRAPH_LAYERS |= {"rust/src/lib": (9,), "rust/py": (6,), "python/krust/__init__": (0,)}
# The lowest layer has no folders: its files import each other, downward.
GRAPH_LAYERS |= {"rust/src/wire": (0, 1), "python/krust/_krust": (0, 1)}
# The broker's own layers from bottom to top. Its lowest files, which any of them may use: the port
# to the policy, and the map from errors to codes.
GRAPH_LAYERS |= {
    f"rust/src/broker{path}": (RUST_LAYERS["broker"], layer)
    for layer, paths in enumerate(
        (
            ("/errors", "/policy", "/replica", "/transactions"),
            ("/state",),
            ("/requests",),
            ("/handlers",),
            ("/lifecycle",),
            ("",),
        )
    )
    for path in paths
}
# Who alone may name a foreign package.
ONLY = {"pyo3": "rust/py/", "kazoo": "python/krust/metadata/zookeeper"}
ONLY |= {"cryptography": "python/krust/security/authority"}
ONLY |= {"pyspark": "python/krust/spark/", "sqlite3": "python/krust/metadata/"}
TABLES = {"python/krust/settings.py", "rust/src/protocol/error.rs"}  # may be longer than a file
LINE, FUNCTION, FILE = 100, 70, 600


def sources(*folders: str, suffix: str) -> list[Path]:
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob(f"*{suffix}")))
    return [path for path in found if path.parts[len(ROOT.parts)] != "target"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


RUST_FILES = sources("rust/src", "rust/py", suffix=".rs")
PYTHON_FILES = sources("python/krust", suffix=".py")
OTHERS = sources("tests", "examples", "benches", suffix=".py") + sources(
    "rust/build", "rust/tests", "rust/benches", "fuzz/targets", suffix=".rs"
)


def module(path: Path, top: Path) -> str:
    return path.relative_to(top).parts[0].removesuffix(path.suffix)


def product_code(path: Path) -> str:
    """A Rust file without its unit tests, which may reach anywhere."""
    return path.read_text().partition("#[cfg(test)]")[0]


def rust_uses(path: Path) -> Iterator[str]:
    text = re.sub(r"//.*", "", product_code(path))
    yield from re.findall(r"\bcrate::(\w+)", text)
    for group in re.findall(r"\bcrate::\{([^;]*)\};", text):
        yield from (part.split("::")[0].strip() for part in re.split(r",(?![^{]*\})", group))


def python_uses(path: Path, *, whole: bool = True) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if whole else iter(tree.body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_rust_modules_use_only_lower_layers() -> None:
    wrong = []
    for path in sources("rust/src", suffix=".rs"):
        here = module(path, RUST)
        if here == "lib":
            continue
        layer = RUST_LAYERS[here]
        for used in filter(None, rust_uses(path)):
            other = RUST_LAYERS.get(used, -1)
            if used != here and (other > layer or other == layer > 0):
                wrong += [f"{name(path)} (layer {layer}) uses crate::{used}"]
    assert not wrong, "\n".join(wrong)


def test_python_modules_use_only_lower_layers() -> None:
    wrong = []
    for path in PYTHON_FILES:
        here = module(path, PYTHON)
        if here == "__init__":
            continue
        for used in python_uses(path):
            parts = used.split(".")
            ours = parts[0] == "krust" and len(parts) > 1 and parts[1] != here
            if ours and PYTHON_LAYERS.get(parts[1], 99) >= PYTHON_LAYERS[here]:
                wrong += [f"{name(path)} imports {used}"]
    assert not wrong, "\n".join(wrong)


@cache
def graphs() -> dict[str, import_graph.Graph]:
    """The import graphs of the core and of the package."""
    return {
        "rust": import_graph.rust_graph({"krust": RUST, "_krust": NATIVE}, ROOT),
        "python": import_graph.python_graph(PYTHON, ROOT),
    }


@pytest.mark.parametrize("language", ["rust", "python"])
def test_an_import_leads_to_its_own_folder_or_to_a_lower_layer(language: str) -> None:
    assert not import_graph.not_downward(graphs()[language], GRAPH_LAYERS)


@pytest.mark.parametrize("language", ["rust", "python"])
def test_no_import_circle_is_larger_than_two_files(language: str) -> None:
    graph = graphs()[language]
    found = [each for each in import_graph.circles(graph) if len(each) > 2]
    assert not found, "\n".join(line for each in found for line in import_graph.ties(graph, each))


def test_no_python_files_import_each_other_in_a_circle() -> None:
    graph = graphs()["python"]
    found = import_graph.circles(graph)
    assert not found, "\n".join(line for each in found for line in import_graph.ties(graph, each))


def test_foreign_packages_stay_in_their_module() -> None:
    wrong = []
    for path in RUST_FILES:
        if re.search(r"\bpyo3\b", re.sub(r"//.*", "", path.read_text())):
            wrong += [f"{name(path)}: pyo3"] * (not name(path).startswith(ONLY["pyo3"]))
    for path in PYTHON_FILES:
        for package in {used.split(".")[0] for used in python_uses(path)} & ONLY.keys():
            wrong += [f"{name(path)}: {package}"] * (not name(path).startswith(ONLY[package]))
    assert not wrong, "\n".join(wrong)


def test_lines_functions_and_files_are_short() -> None:
    wrong = []
    for path in RUST_FILES + PYTHON_FILES + OTHERS:
        lines = path.read_text().splitlines()
        wrong += [f"{name(path)}:{n}: long line" for n, x in enumerate(lines, 1) if len(x) > LINE]
        code = len(product_code(path).splitlines()) if path.suffix == ".rs" else len(lines)
        if code > FILE and name(path) not in TABLES:
            wrong.append(f"{name(path)}: {code} lines")
        for line, size in functions(path, lines):
            if size > FUNCTION:
                wrong.append(f"{name(path)}:{line}: a function of {size} lines")
    assert not wrong, "\n".join(wrong)


def functions(path: Path, lines: list[str]) -> Iterator[tuple[int, int]]:
    """First line and length of each function. Rust: by rustfmt's indentation."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1
        return
    head = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \S+ )*fn \w")
    for first, line in enumerate(lines):
        found = head.match(line)
        if found and not line.rstrip().endswith((";", "}")):
            end = f"{found[1]}}}"
            last = next((n for n in range(first, len(lines)) if lines[n].startswith(end)), first)
            yield first + 1, last - first + 1


OPENED_BY_USERS = {"krust.clients.classic", "krust.clients.simple"}
OPENED_BY_USERS |= {"krust.clients.zookeeper"}


def test_every_file_is_used_by_another() -> None:
    used = {"krust.testing.plugin", "krust.__main__", "krust", *OPENED_BY_USERS}
    for path in PYTHON_FILES:
        used |= {part for use in python_uses(path) for part in (use, use.rpartition(".")[0])}
        used |= set(re.findall(r'"(krust(?:\.\w+)+)"', path.read_text()))  # lazily imported
    for arrows in graphs()["python"].values():  # texts that name functions
        used |= {each[len("python/") :].removesuffix(".py").replace("/", ".") for each in arrows}
    modules = {
        ".".join(path.relative_to(ROOT / "python").with_suffix("").parts).removesuffix(".__init__")
        for path in PYTHON_FILES
    }
    modules -= {each for each in modules if each.startswith("krust.messages")}  # one per schema
    packages = {module.rpartition(".")[0] for module in used}
    assert not sorted(modules - used - packages)
    declared = " ".join(re.findall(r"\bmod (\w+)", "\n".join(map(Path.read_text, RUST_FILES))))
    orphans = {path.stem if path.stem != "mod" else path.parent.name for path in RUST_FILES}
    assert not orphans - set(declared.split()) - {"lib"}


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX"])
def test_every_todo_has_an_issue_number(word: str) -> None:
    loose = re.compile(rf"\b{word}\b(?!\(#\d+\))")
    files = [path for path in RUST_FILES + PYTHON_FILES + OTHERS if path != Path(__file__)]
    assert not [name(path) for path in files if loose.search(path.read_text())]


def test_every_file_opens_with_its_contract() -> None:
    openings = ("//!", '"""', 'r"""', "#!", "//")
    files = [path for path in RUST_FILES + PYTHON_FILES if path.stat().st_size]
    assert not [name(path) for path in files if not path.read_text().startswith(openings)]


@pytest.mark.parametrize("command", ["--help", "serve --help", "--version"])
def test_only_click_and_the_standard_library_lie_on_the_way_to_a_command(command: str) -> None:
    code = (
        "import sys; before = set(sys.modules); import krust.cli\n"
        f"try: krust.cli.main({command.split()!r})\n"
        "except SystemExit: pass\n"
        "print(*{m.split('.')[0] for m in sys.modules.keys() - before}, file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    foreign = set(run.stderr.split()) - sys.stdlib_module_names - {"krust", "click"}
    assert not foreign


def test_cargo_and_python_have_the_same_version() -> None:
    import krust

    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert cargo["workspace"]["package"]["version"] == krust.__version__


def test_every_planted_bug_applies_to_the_sources() -> None:
    assert planted.misplaced(ROOT) == []
    assert planted_replication.SUITE.misplaced(ROOT) == []
    assert planted_transactions.SUITE.misplaced(ROOT) == []


if __name__ == "__main__":
    sys.exit(import_graph.show(graphs(), GRAPH_LAYERS, sys.argv[1:]))
