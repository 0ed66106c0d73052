"""Rows of the store are the same in both readers of datasets."""

from __future__ import annotations

from itertools import chain

import pytest

from dramaturg.datasets import DatasetError, Format
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.dataset_process import IsolatedSampleReader
from gateway.runs.datasets import SampleReader
from gateway.runs.row_reader import read_rows
from gateway.runs.store.samples import GROUP_SIZE
from tests.gateway.runs.test_dataset_process import LIMITS, isolated, spec
from tests.support.bombs import GOOD_LINE
from tests.support.datasets import written
from tests.support.engines import script_rows
from tests.support.runs import sample_rows


@pytest.mark.parametrize("form", Format)
def test_rows_are_those_of_the_samples(form: Format) -> None:
    content = written(script_rows(30), form) + (b"no row\n" if form is Format.JSONL else b"")
    expected = sample_rows(SampleReader(spec(form), content, DatasetAccess()))
    here, there = SampleReader(spec(form), content, DatasetAccess()), isolated(content, form)
    assert [*chain(*read_rows(here))] == [*chain(*read_rows(there))] == expected
    assert there.manifest == here.manifest


def test_rows_come_in_groups_until_the_dataset_cannot_be_read() -> None:
    access = DatasetAccess(max_bytes=len(GOOD_LINE) * (GROUP_SIZE + 10))
    reader = IsolatedSampleReader(spec(), GOOD_LINE * 2 * GROUP_SIZE, access, LIMITS)
    groups = read_rows(reader)
    assert len(next(groups)) == GROUP_SIZE
    with pytest.raises(DatasetError, match="bytes when it is unpacked"):
        next(groups)
