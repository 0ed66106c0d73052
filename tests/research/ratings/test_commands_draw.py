from __future__ import annotations

from collections import Counter

from dramaturg_research.ratings.commands import draw


def test_every_row_is_equally_likely() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(2000):
        drawn.update(row["id"] for row in draw(iter([{"id": str(n)} for n in range(8)]), 2, seed))
    assert sum(drawn.values()) == 4000
    assert all(400 < count < 600 for count in drawn.values())
