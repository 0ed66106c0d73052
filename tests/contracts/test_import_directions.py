"""Two floors: the ground (``dramaturg``), and side by side on it the services, the gateway and research."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ROOT / "services" / "agents"
RESEARCH = ROOT / "research" / "dramaturg_research"
OURS = ("services", "gateway", "dramaturg", "dramaturg_research", "tests")


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def houses() -> Iterator[tuple[str, Path]]:
    """Every part that must not know its neighbours, with its import prefix."""
    yield "dramaturg", ROOT / "dramaturg"
    yield "gateway", ROOT / "gateway"
    for folder in sorted((ROOT / "services").iterdir()):
        if folder.is_dir() and folder != AGENTS and any(folder.rglob("*.py")):
            yield f"services.{folder.name}", folder
    for folder in sorted(AGENTS.iterdir()):
        if folder.is_dir() and any(folder.glob("*.py")):
            yield f"services.agents.{folder.name}", folder


def is_within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


@pytest.mark.parametrize(("prefix", "folder"), [pytest.param(*house, id=house[0]) for house in houses()])
def test_a_part_imports_only_itself_and_the_ground(prefix: str, folder: Path) -> None:
    allowed = [prefix, "dramaturg"]
    if prefix.startswith("services.agents."):
        # What the offline agents share is a room of the agents' folder, not a neighbour.
        allowed.append("services.agents.offline")
    strangers = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in folder.rglob("*.py")
        if "dramaturg/api" not in path.as_posix()
        for module in imported_modules(path)
        if any(is_within(module, top) for top in OURS)
        and module not in {"services", "services.agents"}
        and not any(is_within(module, prefix) for prefix in allowed)
    }
    assert not strangers


def test_research_imports_the_ground_and_meets_services_in_their_contracts() -> None:
    """Training alone has the network of the service ``edges``, for which it trains the weights."""
    strangers = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in RESEARCH.rglob("*.py")
        for module in imported_modules(path)
        if any(is_within(module, top) for top in ("services", "gateway", "tests"))
        if not (path.parent == RESEARCH / "training" and is_within(module, "services.edges"))
    }
    assert not strangers


def test_only_the_edge_of_a_service_knows_of_the_network() -> None:
    """Domain modules are plain Python: servicer.py, app.py and codec.py decode, wire and encode for them."""
    offenders = [
        f"{path.relative_to(ROOT)}"
        for path in (ROOT / "services").rglob("*.py")
        if path.name not in {"app.py", "servicer.py", "codec.py", "__main__.py"}
        if any(is_within(module, "grpc.aio") for module in imported_modules(path))
    ]
    assert not offenders


AGGREGATION = (
    "dramaturg.summaries",
    "dramaturg.results.leaderboard",
    "dramaturg.results.means",
    "dramaturg.results.rows",
)
"""Modules that compute figures."""


STATISTICS = (
    "statistics",
    "numpy",
    "scipy",
    "pandas",
    "dramaturg.results.means",
    "dramaturg.results.leaderboard.leaderboard",
    "dramaturg.results.rows.flatten",
)
"""What computes figures of results."""


@pytest.mark.parametrize(
    ("shown", "modules"),
    [
        # They show figures of ``evaluation.v1.Summary`` and answers of services.
        (("dramaturg/report/**/*.py", "dramaturg/kinds/*/view.py"), AGGREGATION),
        (("dramaturg/cli/**/*.py", "dramaturg/kinds/*/command.py"), STATISTICS),
        # The figures of a reproduced paper are those of summaries and services: layouts aggregate nothing.
        (("research/dramaturg_research/reproduction/**/*.py",), STATISTICS),
    ],
    ids=["report", "cli", "reproduction"],
)
def test_what_shows_figures_computes_none(shown: Sequence[str], modules: Sequence[str]) -> None:
    paths = {path for pattern in shown for path in ROOT.glob(pattern)}
    assert paths
    offenders = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in paths
        for module in imported_modules(path)
        if any(is_within(module, one) for one in modules)
    }
    assert not offenders


def test_what_an_evaluation_needs_is_an_argument() -> None:
    """The gateway passes an ``EvaluationScope``; a context variable would hide the way of a request."""
    modules = sorted((ROOT / "gateway").rglob("*.py"))
    assert [path.name for path in modules if "contextvars.ContextVar" in imported_modules(path)] == []
