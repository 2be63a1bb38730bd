"""The import graph finds imports that do not lead downward, and circles."""

from pathlib import Path

from tests import import_graph

LAYERS = {"src/lib": (9,), "src/broker": (1, 9), "src/broker/state": (1, 1)}
LAYERS |= {"src/broker/handlers": (1, 2), "src/clock": (0,), "shop": (0,), "shop/cli": (1,)}


def tree(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def rust(root: Path, **changed: str) -> import_graph.Graph:
    files = {
        "lib.rs": "pub mod broker;\npub mod clock;\n",
        "clock.rs": "pub struct Clock;\n",
        "broker/mod.rs": "mod handlers;\nmod state;\npub use state::image::{Image, Leader as L};\n",
        "broker/state/mod.rs": "pub mod image;\npub mod quotas;\n",
        "broker/state/image.rs": "use crate::clock::Clock;\npub struct Image(Clock);\n"
        "pub struct Leader;\n",
        "broker/state/quotas.rs": "pub fn charge() {}\n",
        "broker/handlers/mod.rs": "pub mod fetch;\n",
        "broker/handlers/fetch.rs": "use super::super::{Image, L};\nuse crate::broker::state;\n"
        "fn fetch(_: Image, _: L) { state::quotas::charge() }\npub fn reply() {}\n",
    }
    for file, text in changed.items():
        files[f"broker/state/{file}.rs"] += text
    return import_graph.rust_graph({"shop": tree(root / "src", files)}, root)


def test_arrows_lead_to_the_file_that_defines_a_name(tmp_path: Path) -> None:
    graph = rust(tmp_path)
    assert graph["src/broker/handlers/fetch.rs"] == {
        "src/broker/state/image.rs": {"Image", "Leader"},
        "src/broker/state/quotas.rs": {"charge"},
    }
    assert graph["src/broker/mod.rs"] == {}
    assert import_graph.not_downward(graph, LAYERS) == []
    assert import_graph.circles(graph) == []
    assert import_graph.show({"rust": graph}, LAYERS, ["--dot"]) == 0


def test_an_upward_use_is_named_and_makes_a_circle(tmp_path: Path) -> None:
    planted = "use crate::broker::handlers::fetch::reply;\nfn now() { reply() }\n"
    graph = rust(tmp_path, image=planted)
    arrow = "src/broker/state/image.rs -> src/broker/handlers/fetch.rs: reply"
    assert import_graph.not_downward(graph, LAYERS) == [arrow]
    assert import_graph.circles(graph) == [frozenset(arrow.partition(":")[0].split(" -> "))]
    assert import_graph.show({"rust": graph}, LAYERS, ["src/broker"]) == 1


def test_an_upward_path_in_code_is_named(tmp_path: Path) -> None:
    graph = rust(tmp_path, quotas="fn now() { super::super::handlers::fetch::reply() }\n")
    arrow = "src/broker/state/quotas.rs -> src/broker/handlers/fetch.rs: reply"
    assert import_graph.not_downward(graph, LAYERS) == [arrow]


def test_a_path_into_another_crate_is_an_arrow(tmp_path: Path) -> None:
    core = {"lib.rs": "pub mod clock;\n", "clock.rs": "pub struct Clock;\n"}
    outer = tree(tmp_path / "py", {"lib.rs": "use core_of::clock::Clock;\nfn f(_: Clock) {}\n"})
    crates = {"core_of": tree(tmp_path / "core", core), "py": outer}
    graph = import_graph.rust_graph(crates, tmp_path)
    assert graph["py/lib.rs"] == {"core/clock.rs": {"Clock"}}


def test_unit_tests_may_reach_anywhere(tmp_path: Path) -> None:
    tests = "#[cfg(test)]\nmod tests {\n    use crate::broker::handlers::fetch::reply;\n}\n"
    assert import_graph.not_downward(rust(tmp_path, image=tests), LAYERS) == []


def test_a_python_import_in_a_function_counts(tmp_path: Path) -> None:
    files = {
        "shop/__init__.py": "from shop.words import plural\n",
        "shop/words.py": "def plural(): pass\n",
        "shop/store.py": "def f():\n    from shop.cli import main\n    main()\n",
        "shop/cli.py": "from shop import plural, store\ndef main(): store.f(plural())\n",
    }
    graph = import_graph.python_graph(tree(tmp_path, files) / "shop", tmp_path)
    assert graph["shop/cli.py"] == {"shop/words.py": {"plural"}, "shop/store.py": {"store"}}
    assert import_graph.not_downward(graph, LAYERS) == ["shop/store.py -> shop/cli.py: main"]


def test_an_import_from_another_folder_of_the_same_layer_is_named() -> None:
    layers = LAYERS | {"src/broker/replica": (1, 1)}
    graph: import_graph.Graph = {
        "src/broker/state/image.rs": {"src/broker/replica/step.rs": {"step"}},
        "src/broker/replica/step.rs": {"src/broker/replica/event.rs": {"Event"}},
        "src/broker/replica/event.rs": {},
    }
    arrow = "src/broker/state/image.rs -> src/broker/replica/step.rs: step"
    assert import_graph.not_downward(graph, layers) == [arrow]
