from __future__ import annotations

import pytest

from tests.dramaturg.conformance.table import rows

pytestmark = pytest.mark.slow


async def test_our_services_keep_their_contracts_and_the_faulty_judge_fails_what_it_breaks() -> None:
    checked = await rows()
    assert len(checked) > 10
    assert [(row.service, row.failing) for row in checked if not row.as_expected] == []
