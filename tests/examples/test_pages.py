"""The code blocks of the README, the guide and operators' pages are run as ``tests.support.pages`` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import ROOT
from tests.support.pages import (
    CLUSTER,
    MODEL,
    NOT_RUN,
    PAGES,
    TERMINAL,
    Session,
    blocks,
    unknown_options,
)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_does_what_it_says(session: Session, page: Path) -> None:
    for block in blocks(page):
        if block.title not in NOT_RUN:
            try:
                session.run(block)
            except Exception as error:
                error.add_note(f"{page.relative_to(ROOT)}:{block.line}")
                raise


def test_pages_have_blocks_of_known_languages() -> None:
    assert sum(len(blocks(page)) for page in PAGES) > 20
    titles = {block.title for page in PAGES for block in blocks(page) if not block.is_file}
    assert titles - {"", TERMINAL, MODEL, CLUSTER} == NOT_RUN.keys()


def test_blocks_that_are_not_run_name_options_that_there_are() -> None:
    skipped = [block for page in PAGES for block in blocks(page) if block.title in NOT_RUN]
    commands = [block.code for block in skipped if block.language == "bash"]
    assert sum("dramaturg " in code for code in commands) >= 8
    assert [line for code in commands for line in unknown_options(code)] == []
    assert [*unknown_options("dramaturg eval answers.csv --criterion x -o y")] == [
        "--criterion: dramaturg eval answers.csv --criterion x -o y"
    ]
    assert [*unknown_options("dramaturg runs summary RUN")] == ["dramaturg runs summary RUN"]
