"""Tests mirror the tree.

- A test module ``tests/PACKAGE/test_NAME.py`` tests the module or subpackage ``NAME`` of the product package
  ``PACKAGE``; ``tests/research`` mirrors ``research/dramaturg_research``. ``NAME`` may be followed by an
  aspect: ``test_NAME_ASPECT.py``.
- A test module of a whole package is named after the package or is listed in ``PACKAGE_TESTS``.
- Every product package has tests in its mirrored folder, or is listed in ``TESTED_THROUGH``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = {
    "dramaturg": "dramaturg",
    "services": "services",
    "gateway": "gateway",
    "research": "research/dramaturg_research",
}
"""The folders of the product, by their folders in ``tests``."""

PACKAGE_TESTS: dict[str, set[str]] = {
    "dramaturg": {"init"},
    "dramaturg/cli/align": {"reports"},
    "dramaturg/cli": {"simulbench_path"},
    "dramaturg/datasets": {"csv", "hostile"},
    "dramaturg/integrations": {"harnesses"},
    "dramaturg/service": {"contracts_have_limits", "run", "traps"},
    "dramaturg/service/auth": {"matrix"},
    "dramaturg/service/telemetry": {"metrics"},
    "dramaturg/summaries": {"one_figure"},
    "gateway/evaluations/graphs": {"abstaining", "measuring", "predicting", "refusing", "writing"},
    "gateway/evaluations/scripts": {"failing_judges", "requests"},
    "gateway/http": {"conformance"},
    "gateway/quotas": {"documentation"},
    "gateway/runs": {"sharing"},
    "gateway/runs/engine": {"evaluations"},
    "gateway/runs/service": {"runs", "tenants"},
    "gateway/runs/store": {"counts", "outages"},
    "research/perturbations": {"whole_path"},
    "research/scripts": {"whole_path"},
    "research/reproduction": {"printed"},
    "services/agents": {"apps", "injections", "llm_agents", "messages", "through_generation"},
    "services/alignment": {"published_data", "published_ranks", "service"},
    "services/edges": {"service"},
    "services/embedding": {"service"},
    "services/generation": {"failures", "generate", "generate_batch", "openai_server", "secrets", "tenants"},
    "services/generation/authoring": {"forms"},
    "services/generation/ledger": {"every_store"},
    "services/graph": {"published_data", "service"},
    "services/judging/challenges": {"challenge_judge"},
    "services/judging/pairs": {"confidence", "properties", "service"},
    "services/judging/ratings": {"rating_judge"},
    "services/roles": {"calls"},
}
"""Test modules of a whole package, by package: ``NAME`` of each ``test_NAME.py``."""

TESTED_THROUGH = {
    "gateway/runs/labels/kinds": "gateway/runs/labels",
    "services/agents/commonsense": "services/agents",
    "services/agents/critic": "services/agents",
    "services/agents/execute": "services/agents",
    "services/alignment/codec": "services/alignment",
    "services/graph/codec": "services/graph",
}
"""Packages without tests of their own, and the package whose tests cover them."""


def modules_of_tests() -> Iterator[Path]:
    for top in PRODUCT:
        yield from sorted((ROOT / "tests" / top).rglob("test_*.py"))


def product_packages() -> Iterator[str]:
    """The folders in ``tests`` of packages with modules besides ``__init__`` and ``__main__``; no stubs."""
    for top, folder in PRODUCT.items():
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            package = top / init.parent.relative_to(ROOT / folder)
            modules = {path.stem for path in init.parent.glob("*.py")} - {"__init__", "__main__"}
            if modules and "api" not in package.parts:
                yield package.as_posix()


def subject_names(package: Path) -> set[str]:
    modules = {path.stem for path in package.glob("*.py")}
    folders = {path.name for path in package.iterdir() if any(path.glob("*.py"))}
    return {*modules, *folders, package.name}


def is_mirrored(path: Path) -> bool:
    package = path.parent.relative_to(ROOT / "tests")
    product = ROOT / PRODUCT[package.parts[0]] / Path(*package.parts[1:])
    name = path.stem.removeprefix("test_")
    if name in PACKAGE_TESTS.get(package.as_posix(), ()):
        return True
    if not product.is_dir():
        return False
    return any(name == subject or name.startswith(f"{subject}_") for subject in subject_names(product))


def test_every_test_module_has_its_place() -> None:
    misplaced = [path.relative_to(ROOT).as_posix() for path in modules_of_tests() if not is_mirrored(path)]
    assert not misplaced, (
        "name each test_MODULE[_ASPECT].py in the mirrored folder of MODULE, "
        f"or list it in PACKAGE_TESTS: {misplaced}"
    )


@pytest.mark.parametrize("package", list(product_packages()))
def test_every_package_has_tests(package: str) -> None:
    tests = ROOT / "tests" / package
    own = [*tests.glob("test_*.py"), *tests.parent.glob(f"test_{tests.name}*.py")]
    through = TESTED_THROUGH.get(package)
    assert own or through, f"no tests in tests/{package}; add some, or list it in TESTED_THROUGH"
    if through:
        assert list((ROOT / "tests" / through).glob("test_*.py")), f"tests/{through} has no tests"


@pytest.mark.parametrize("top", ["dramaturg", "gateway"])
def test_the_design_names_every_folder(top: str) -> None:
    text = (ROOT / "docs" / "internals" / "design.md").read_text(encoding="utf-8")
    folders = {f"{top}/{one.name}" for one in (ROOT / top).iterdir() if any(one.glob("*.py"))}
    assert not {folder for folder in folders if f"`{folder}" not in text}
