"""A gateway with the console, in a thread: the browser of the tests is synchronous."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dramaturg.judge.verdicts import failed
from dramaturg.testing import FakeJudge, in_thread, serve
from gateway.settings import JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.support.auth import holder
from tests.support.console import Consoled, serve_console

HOSTILE = "</td><script>document.title='broken'</script><b id=injected>soup</b> \u202emarks\u202c \x1b[31m"
JUDGES = (JudgeEntry(role="critic", name="strict", target="localhost:1"),)
EVALUATOR = holder("research", "evaluator")
VIEWER = holder("research", "viewer")
STRANGER = holder("elsewhere", "evaluator")


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Consoled]:
    """A console without authentication."""
    with in_thread(serve_console(tmp_path, JUDGES)) as served:
        yield served


@asynccontextmanager
async def _with_services(folder: Path) -> AsyncIterator[Consoled]:
    judge = FakeJudge(
        lambda request, candidate: [failed("polite", rationale=f"Not {HOSTILE}")], criteria=["polite"]
    )
    async with (
        AlignmentApp().open() as contracts,
        serve(*contracts) as alignment,
        serve(judge.contract()) as rubrics,
    ):
        entries = [
            JudgeEntry(role="alignment", name="statistics", target=alignment.target),
            JudgeEntry(role="rubric-judge", name="strict", target=rubrics.target),
        ]
        async with serve_console(folder, entries) as served:
            yield served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Consoled]:
    """A console with AlignmentService and a judge of rubrics that fails every text."""
    with in_thread(_with_services(tmp_path)) as started:
        yield started


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Consoled]:
    """A console whose visitors sign in."""
    with in_thread(serve_console(tmp_path, JUDGES, (EVALUATOR, VIEWER, STRANGER))) as served:
        yield served
