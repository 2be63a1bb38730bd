"""Which file imports which: the graph that `test_layers` checks and `make layers` prints.

A graph maps each file to the files it imports, each with the names it takes from there. Files are
named by their path from the root of the repository. An arrow leads to the file that defines a name,
not to a `mod.rs` or `__init__.py` that only passes it on.

Rust: `use` trees and paths in code (`crate::`, `super::`, `self::`, a child, an imported module).
    Unit tests (`#[cfg(test)] mod`) are left out. Python: every `import`, also inside functions, and
    every text that names a function of a module in the same folder ("topics.create").
Not seen: methods called on a value, code that a macro or a build script writes, modules named by
    other texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Graph = dict[str, dict[str, set[str]]]
ModulePath = tuple[str, ...]


# The graph of Rust files.


@dataclass
class RustModule:
    """What one Rust file says about names."""

    file: str
    code: str
    """The file without comments, unit tests and `use` items."""
    imports: dict[str, list[str]] = field(default_factory=dict)
    """From a name in this file to the path it was imported by."""
    public: set[str] = field(default_factory=set)
    """The imported names that it passes on."""
    globs: list[list[str]] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)


_USE = re.compile(r"(?m)^\s*(pub(?:\([^)]*\))?\s+)?use\s+([\w{][^;]*);")
_TESTS = re.compile(r"(?ms)^#\[cfg\(test\)\]\nmod \w+ \{.*?^\}\n")
_DEFINITION = re.compile(r"\b(?:struct|enum|union|trait|type|fn|const|static|mod)\s+(\w+)")
_PATH = re.compile(r"(?<![\w:])\w+(?:::\w+)+")


def rust_graph(crates: Mapping[str, Path], root: Path) -> Graph:
    """The import graph of crates, by name the folder of each one's `lib.rs`."""
    modules = dict(each for name, top in crates.items() for each in _rust_modules(name, top, root))
    graph: Graph = {module.file: {} for module in modules.values()}
    for here, module in modules.items():
        for path in _rust_paths(module):
            full = _absolute(modules, here, path, set())
            home, rest = _split(modules, full or ())
            if len(home) > 1 and modules[home] is not module:  # a `lib.rs` defines nothing
                names = graph[module.file].setdefault(modules[home].file, set())
                names.add(rest[0] if rest else "*")
    return graph


def _rust_modules(crate: str, top: Path, root: Path) -> Iterator[tuple[ModulePath, RustModule]]:
    for path in sorted(top.rglob("*.rs")):
        inner = path.relative_to(top).with_suffix("").parts
        here = (crate, *(inner[:-1] if inner[-1] in ("mod", "lib") else inner))
        text = _TESTS.sub("", re.sub(r"//.*", "", path.read_text()))
        module = RustModule(path.relative_to(root).as_posix(), _USE.sub("", text))
        module.defined = set(_DEFINITION.findall(module.code))
        for passed_on, tree in _USE.findall(text):
            for used, name in _use_tree([], tree):
                if name == "*":
                    module.globs.append(used)
                    continue
                module.imports[name] = used
                if passed_on:
                    module.public.add(name)
        yield here, module


def _use_tree(above: list[str], tree: str) -> Iterator[tuple[list[str], str]]:
    """Each path of a `use` tree, and the name it has in the file; `*` for all of a module."""
    head, brace, rest = tree.partition("{")
    if brace:
        above = above + [part for part in re.split(r"::|\s+", head) if part]
        for branch in _branches(rest[: rest.rindex("}")]):
            yield from _use_tree(above, branch)
        return
    path, _, alias = (part.strip() for part in tree.partition(" as "))
    parts = above + path.split("::")
    if parts[-1] == "self" and above:
        parts = parts[:-1]
    if parts[-1] == "*":
        yield parts[:-1], "*"
    elif parts[-1]:
        yield parts, alias or parts[-1]


def _branches(text: str) -> Iterator[str]:
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


def _rust_paths(module: RustModule) -> Iterator[list[str]]:
    """The paths that draw arrows: those in code, and each import that the code uses."""
    paths = [found.split("::") for found in set(_PATH.findall(module.code))]
    yield from paths
    words = set(re.findall(r"\w+", module.code))
    first_words = {path[0] for path in paths}
    for name, used in module.imports.items():
        if name in module.public and name not in words:
            continue  # it is only passed on
        if name not in first_words:
            yield used
    yield from module.globs


_ROOTS = {"crate", "self", "super"}


def _absolute(
    modules: Mapping[ModulePath, RustModule],
    here: ModulePath,
    path: list[str],
    seen: set[tuple[ModulePath, str]],
) -> ModulePath | None:
    """The path from the crate's name to what is named, through every name that is passed on."""
    base, rest = here, list(path)
    if rest[0] == "crate":
        base, rest = here[:1], rest[1:]
    elif rest[0] in _ROOTS:
        rest = rest[1:] if rest[0] == "self" else rest
        while rest and rest[0] == "super":
            base, rest = base[:-1] or base, rest[1:]
    elif (*here, rest[0]) not in modules and rest[0] not in modules[here].imports:
        if (rest[0],) not in modules:
            return None
        base, rest = (rest[0],), rest[1:]
    return _follow(modules, base, rest, seen)


def _follow(
    modules: Mapping[ModulePath, RustModule],
    base: ModulePath,
    rest: list[str],
    seen: set[tuple[ModulePath, str]],
) -> ModulePath | None:
    while rest and (*base, rest[0]) in modules:
        base, rest = (*base, rest[0]), rest[1:]
    if not rest or rest[0] in modules[base].defined or (base, rest[0]) in seen:
        return (*base, *rest)
    seen.add((base, rest[0]))
    if (used := modules[base].imports.get(rest[0])) is not None:
        return _absolute(modules, base, used + rest[1:], seen)
    for used in modules[base].globs:
        full = _absolute(modules, base, used + rest, seen)
        home, tail = _split(modules, full or ())
        if home and tail and tail[0] in modules[home].defined:
            return full
    return (*base, *rest)


def _split(
    modules: Mapping[ModulePath, RustModule], full: ModulePath
) -> tuple[ModulePath, ModulePath]:
    """The longest part of a path that is a file, and what it names there."""
    size = max((size for size in range(len(full) + 1) if full[:size] in modules), default=0)
    return full[:size], full[size:]


# The graph of Python files.


def python_graph(top: Path, root: Path) -> Graph:
    """The import graph of the package in the folder `top`."""
    files = {}
    for path in sorted((*top.rglob("*.py"), *top.rglob("*.pyi"))):
        dotted = ".".join(path.relative_to(top.parent).with_suffix("").parts)
        files[dotted.removesuffix(".__init__")] = path
    trees = {module: ast.parse(path.read_text()) for module, path in files.items()}
    passed_on = {
        module: dict(_python_imports(ast.walk(tree)))
        for module, tree in trees.items()
        if files[module].name == "__init__.py"
    }
    graph: Graph = {path.relative_to(root).as_posix(): {} for path in files.values()}
    for module, tree in trees.items():
        here = files[module].relative_to(root).as_posix()
        named = _named_by_texts(tree, module.rpartition(".")[0], trees)
        for name, (home, original) in (*_python_imports(ast.walk(tree)), *named):
            target = _python_home(files, passed_on, home, original)
            if target is None or target == module:
                continue
            if module in passed_on and not _is_used(tree, name):
                continue
            there = files[target].relative_to(root).as_posix()
            graph[here].setdefault(there, set()).add(original or "*")
    return graph


def _python_imports(
    nodes: Iterator[ast.AST],
) -> Iterator[tuple[str, tuple[str, str]]]:
    """The name in this file, the module that is named, and the name in there ("": the module)."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, (alias.name, "")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, (node.module, alias.name)


def _named_by_texts(
    tree: ast.Module, package: str, trees: Mapping[str, ast.Module]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """The same for each text that is the name of a module in this package and of its function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, _, function = node.value.partition(".")
            there = trees.get(f"{package}.{module}")
            if there is not None and any(
                isinstance(each, ast.FunctionDef) and each.name == function for each in there.body
            ):
                yield node.value, (f"{package}.{module}", function)


def _python_home(
    files: Mapping[str, Path],
    passed_on: Mapping[str, Mapping[str, tuple[str, str]]],
    home: str,
    name: str,
) -> str | None:
    """The module that defines `name` of the module `home`, through packages that pass it on."""
    for _ in range(len(files)):
        if name and f"{home}.{name}" in files:
            return f"{home}.{name}"
        if home not in passed_on or name not in passed_on[home]:
            break
        home, name = passed_on[home][name]
    return home if home in files else None


def _is_used(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


# What a graph shows, in any language.


def circles(graph: Graph) -> list[frozenset[str]]:
    """The sets of files that import each other, directly or through others; largest first."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(file: str) -> None:
        number[file] = lowest[file] = len(number)
        stack.append(file)
        for other in graph[file]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[file] = min(lowest[file], lowest[other])
        if lowest[file] == number[file]:
            at = stack.index(file)
            found.append(frozenset(stack[at:]))
            del stack[at:]

    for file in graph:
        if file not in number:
            visit(file)
    return sorted(
        (each for each in found if len(each) > 1), key=lambda each: (-len(each), min(each))
    )


def ties(graph: Graph, files: frozenset[str]) -> list[str]:
    """The arrows among these files, as lines."""
    return [
        f"{file} -> {other}: {', '.join(sorted(names))}"
        for file in sorted(files)
        for other, names in sorted(graph[file].items())
        if other in files
    ]


def folder(file: str, layers: Mapping[str, tuple[int, ...]]) -> str:
    """The longest path of the table above a file."""
    path = file
    while path not in layers:
        above = path.rpartition("/")[0]
        path = path.rpartition(".")[0] if "." in path.rpartition("/")[2] else above
        if not path:
            raise KeyError(f"{file}: no layer of the table")
    return path


def layer(file: str, layers: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The layer of a file."""
    return layers[folder(file, layers)]


def not_downward(graph: Graph, layers: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The arrows that lead to a higher layer, or to another folder of the same, as lines."""
    return [
        f"{file} -> {other}: {', '.join(sorted(names))}"
        for file in sorted(graph)
        for other, names in sorted(graph[file].items())
        if layer(other, layers) >= layer(file, layers)
        and folder(other, layers) != folder(file, layers)
    ]


def steps(graph: Graph) -> dict[str, int]:
    """How many imports lie below each file at most; files of one circle count alike."""
    circle = {file: each for each in circles(graph) for file in each}
    known: dict[str, int] = {}

    def step(file: str) -> int:
        if file not in known:
            here = circle.get(file, frozenset([file]))
            below = {other for each in here for other in graph[each]} - here
            height = max((step(other) + 1 for other in below), default=0)
            known.update(dict.fromkeys(here, height))
        return known[file]

    for file in graph:
        step(file)
    return known


def within(graph: Graph, folder: str) -> Graph:
    """The part of a graph below a folder."""
    return {
        file: {other: names for other, names in others.items() if other.startswith(folder)}
        for file, others in graph.items()
        if file.startswith(folder)
    }


def sheet(graph: Graph, layers: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Lines: the layers from top to bottom, in each the files with most below them first."""
    height = steps(graph)
    by_layer: dict[tuple[int, ...], list[str]] = {}
    for file in sorted(graph, key=lambda file: (-height[file], file)):
        by_layer.setdefault(layer(file, layers), []).append(file)
    for rank in sorted(by_layer, reverse=True):
        yield f"layer {'.'.join(map(str, rank))}"
        for file in by_layer[rank]:
            arrows = [other.rpartition("/src/")[2] for other in sorted(graph[file])]
            yield f"  {file:58} {height[file]:3}  -> {', '.join(arrows) or '-'}"
    for each in circles(graph):
        yield f"circle of {len(each)} files"
        yield from (f"  {line}" for line in ties(graph, each))
    arrows = not_downward(graph, layers)
    yield f"{len(arrows)} arrows lead upward or sideways"
    yield from (f"  {line}" for line in arrows)


def dot(graph: Graph) -> Iterator[str]:
    """Lines of a graph for Graphviz, a box for each folder."""
    yield "digraph imports {"
    yield "  rankdir=TB; node [shape=box, fontsize=10];"
    folders = sorted({file.rpartition("/")[0] for file in graph})
    for number, folder in enumerate(folders):
        yield f'  subgraph cluster_{number} {{ label="{folder}";'
        for file in sorted(graph):
            if file.rpartition("/")[0] == folder:
                yield f'    "{file}" [label="{file.rpartition("/")[2]}"];'
        yield "  }"
    for file in sorted(graph):
        yield from (f'  "{file}" -> "{other}";' for other in sorted(graph[file]))
    yield "}"


def show(
    graphs: Mapping[str, Graph], layers: Mapping[str, tuple[int, ...]], arguments: list[str]
) -> int:
    """Prints the graphs: `[--dot] [FOLDER]`; 1 where an arrow leads upward or sideways."""
    folder = next((each for each in arguments if not each.startswith("-")), "")
    wrong = 0
    for graph in graphs.values():
        shown = within(graph, folder)
        wrong += len(not_downward(shown, layers))
        if shown:
            print("\n".join(dot(shown) if "--dot" in arguments else sheet(shown, layers)))
    return 1 if wrong else 0
