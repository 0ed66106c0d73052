from __future__ import annotations

import pytest

from tests.dramaturg.conformance.table import rows

pytestmark = pytest.mark.slow


async def test_our_services_keep_their_contracts() -> None:
    checked = await rows()
    assert len(checked) > 10
    assert [(row.service, row.failing) for row in checked if not row.as_expected] == []
