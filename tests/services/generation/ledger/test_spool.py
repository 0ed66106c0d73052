"""The spool: what a process leaves behind, whole, once, and to one heir."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generation.ledger.spool import Contents, Kept, Sent, Spool, kept_line, orphans, sent_line

MARKS = st.text("0123456789abcdef", min_size=1, max_size=8)
TIMES = st.floats(0, 2e9)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), MARKS, TIMES),
        st.tuples(st.just("kept"), MARKS, TIMES, st.lists(st.text(max_size=20), max_size=3)),
        st.tuples(st.sampled_from(["settled", "abandoned"]), st.integers(1, 20)),
    ),
    max_size=40,
)


@given(ACTIONS)
def test_contents_come_back_from_their_lines(actions: list[tuple[Any, ...]]) -> None:
    contents = Contents()
    number = 0
    for kind, *values in actions:
        if kind == "sent":
            number += 1
            line = sent_line(number, Sent(*values))
        elif kind == "kept":
            mark, at, purchases = values
            text = json.dumps(purchases, ensure_ascii=False, separators=(",", ":"))
            line = kept_line(str(mark), Kept(at, text), [number])
        else:
            line = json.dumps({kind: [min(values[0], number)]})
        contents.read(json.loads(line))
    again = Contents()
    for line in contents.lines():
        assert "\n" not in line
        again.read(json.loads(line))
    assert (again.kept, again.sent, again.abandoned) == (contents.kept, contents.sent, contents.abandoned)
    assert not contents.sent.keys() & contents.abandoned.keys()


def test_a_spool_has_one_heir_and_only_after_its_process(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "a")
    spool.append(sent_line(1, Sent("f", 1.0)))
    with orphans(tmp_path) as found:
        assert found == []
    spool.close(remove=False)
    with orphans(tmp_path) as found:
        assert [(process, contents.sent) for process, contents in found] == [("a", {1: Sent("f", 1.0)})]
        with orphans(tmp_path) as others:
            assert others == []
    with orphans(tmp_path) as found:
        assert found == []
    assert not list(tmp_path.iterdir())


def test_an_heir_that_fails_leaves_it_to_the_next(tmp_path: Path) -> None:
    Spool(tmp_path, "a").close(remove=False)
    with pytest.raises(OSError, match="no database"), orphans(tmp_path):
        raise OSError("no database")
    with orphans(tmp_path) as found:
        assert len(found) == 1


def test_a_line_cut_by_death_costs_only_itself(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "a")
    spool.append(kept_line("f", Kept(1.0, "[1]"), ()))
    spool.append('{"kept":"g","at":1.0,"settled":[],"purch')
    spool.close(remove=False)
    with orphans(tmp_path) as found:
        assert found[0][1].kept == {"f": Kept(1.0, "[1]")}


def test_a_disk_that_takes_a_part_of_a_line_has_taken_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, "a")
    spool.append(kept_line("f", Kept(1.0, "[1]"), ()))
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    with pytest.raises(OSError, match="only 10 of"):
        spool.append(kept_line("g", Kept(1.0, "[1]"), ()))
    with pytest.raises(OSError, match="only 10 of"):
        spool.rewrite(Contents({"h": Kept(1.0, "[1]")}))
    monkeypatch.undo()
    spool.append(kept_line("i", Kept(1.0, "[1]"), ()))
    spool.close(remove=False)
    with orphans(tmp_path) as found:
        assert set(found[0][1].kept) == {"f", "i"}


def test_a_rewritten_spool_is_still_locked(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "a")
    spool.append(kept_line("f", Kept(1.0, "[1]"), ()))
    spool.rewrite(Contents({"g": Kept(2.0, "[2]")}))
    with orphans(tmp_path) as found:
        assert found == []
    spool.append(kept_line("h", Kept(3.0, "[3]"), ()))
    spool.close(remove=False)
    with orphans(tmp_path) as found:
        assert set(found[0][1].kept) == {"g", "h"}


def test_a_spool_without_records_needs_no_space_to_be_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spool = Spool(tmp_path, "a")
    spool.append(kept_line("f", Kept(1.0, "[1]"), ()))
    monkeypatch.setattr(os, "open", no_space)
    spool.rewrite(Contents())
    monkeypatch.undo()
    assert (spool.size, spool.path.stat().st_size) == (0, 0)
    spool.append(kept_line("g", Kept(1.0, "[1]"), ()))
    spool.close(remove=False)
    with orphans(tmp_path) as found:
        assert set(found[0][1].kept) == {"g"}
