"""No module imports itself by way of others, for types alone included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = {"dramaturg": ".", "services": ".", "gateway": ".", "dramaturg_research": "research"}
"""The packages of the product, each with the folder that has it."""


def modules(root: Path) -> Mapping[str, Path]:
    """The modules of the product, by name; generated stubs are left out."""
    found: dict[str, Path] = {}
    for top, folder in PRODUCT.items():
        for path in (root / folder / top).rglob("*.py"):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if parts[:2] != ("dramaturg", "api"):
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module's own level, those for type checkers included, and none inside of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from statements(child)


def imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that a module imports, with the packages that are imported on the way to them."""
    names: set[str] = set()
    for statement in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif statement.module:
            # Of a submodule it is the submodule that is imported, and not what its package offers.
            names |= {
                submodule if (submodule := f"{statement.module}.{alias.name}") in known else statement.module
                for alias in statement.names
            }
    for target in names:
        parts = target.split(".")
        for length in range(1, len(parts) + 1):
            module = ".".join(parts[:length])
            if module in known and module != name and not name.startswith(f"{module}."):
                yield module


def import_cycles(root: Path) -> list[list[str]]:
    """The groups of modules that import each other."""
    known = modules(root)
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for name, path in known.items():
        graph.add_edges_from((name, target) for target in imported(name, path, known))
    return [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert not import_cycles(ROOT)


@pytest.mark.parametrize(
    "back",
    [
        "import dramaturg.one",
        "from dramaturg.one import A",
        "from dramaturg import one",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dramaturg.one import A",
    ],
)
def test_a_cycle_is_found(tmp_path: Path, back: str) -> None:
    package = tmp_path / "dramaturg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("from dramaturg.two import B\n")
    (package / "two.py").write_text(f"{back}\n")
    assert import_cycles(tmp_path) == [["dramaturg.one", "dramaturg.two"]]


def test_an_import_of_a_function_is_no_cycle(tmp_path: Path) -> None:
    package = tmp_path / "dramaturg"
    package.mkdir()
    (package / "one.py").write_text("from dramaturg.two import B\n")
    (package / "two.py").write_text("def later():\n    from dramaturg.one import A\n")
    assert not import_cycles(tmp_path)
