"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.browser import chromium
from tests.support.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]  # fixtures that any test may ask for

ROOT = Path(__file__).resolve().parent.parent
TEST_VARIABLES = {"DRAMATURG_DATA"}
"""Variables that configure the tests themselves."""

USUAL_SECONDS = 120.0
"""The time limit of a test; many with a longer one take longest."""

# Workers of the tests share the cores: threads of one would wait for those of the others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The time to draw an input depends on the load of the machine. A change meets the same inputs each time; with
# --hypothesis-profile=random others are drawn.
settings.register_profile("random", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.register_profile("dramaturg", settings.get_profile("random"), derandomize=True)
settings.load_profile("dramaturg")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts background processes so. Commands that the tests start would inherit
    # it, and Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Takes what collecting the tests made out of all searches for garbage: it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests with the longest time limits first: no process of several ends alone with one."""

    def limit(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return max(USUAL_SECONDS, mark.args[0]) if mark else USUAL_SECONDS

    items.sort(key=limit, reverse=True)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of third-party data: DRAMATURG_DATA, or beside the checkout. Skips where it is absent."""
    named = os.environ.get("DRAMATURG_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no third-party data at {folder}; set DRAMATURG_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="module")
def shared_browser() -> Iterator[None]:
    """Opens all pages of a module in one process of the browser. Its tests run no event loop themselves."""
    with chromium():
        yield


@pytest.fixture(scope="session")
def _data_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One path for each test. Few tests write there, and to make a folder looks through all made before."""
    folder = tmp_path_factory.mktemp("data-homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _no_outside_configuration(monkeypatch: pytest.MonkeyPatch, _data_homes: Iterator[Path]) -> None:
    """Hides the developer's providers, settings and ledger from the tests."""
    for name in list(os.environ):
        if name.startswith(("DRAMATURG_", "OPENAI_", "OTEL_")) and name not in TEST_VARIABLES:
            monkeypatch.delenv(name)
    monkeypatch.delenv("MODEL", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(next(_data_homes)))
    # A process has one engine of runs, and most tests of a gateway do not need it.
    monkeypatch.setenv("DRAMATURG_RUNS_ENABLED", "false")
    # A process takes a second to start.
    monkeypatch.setenv("DRAMATURG_GATEWAY_WORKER_PROCESSES", "0")


@pytest.fixture
def runs_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the gateways of a test keep runs, in the test's data folder."""
    monkeypatch.setenv("DRAMATURG_RUNS_ENABLED", "true")
    # Judges that fail in a test do not return.
    monkeypatch.setenv("DRAMATURG_RUNS_OUTAGE_TIMEOUT_SECONDS", "0")
    monkeypatch.setenv("DRAMATURG_RUNS_DRAIN_TIMEOUT_SECONDS", "1")
