"""The code blocks of the README, the guide and operators' pages are run as ``tests.support.pages`` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import ROOT
from tests.support.pages import NEEDS, PAGES, TERMINAL, Session, blocks


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
        if not block.title.startswith(NEEDS):
            try:
                session.run(block)
            except Exception as error:
                error.add_note(f"{page.relative_to(ROOT)}:{block.line}")
                raise


def test_pages_have_blocks_of_known_languages() -> None:
    assert sum(len(blocks(page)) for page in PAGES) > 20
    titles = {block.title for page in PAGES for block in blocks(page)}
    assert all(not title or title == TERMINAL or title.startswith(NEEDS) or "." in title for title in titles)
