"""Dropout by bytes: needs torch."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs the extra [embeddings]")


def test_a_share_is_dropped_and_the_mean_stays() -> None:
    from services.edges.layers import ByteDropout

    torch.manual_seed(0)
    # No whole number of words.
    left = ByteDropout(0.25)(torch.ones(100, 1003))
    assert left.shape == (100, 1003)
    assert float((left == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert sorted(left.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert left.std(0).min() > 0
    assert left.std(1).min() > 0


def test_the_seed_decides_and_numbers_keep_their_kind() -> None:
    from services.edges.layers import ByteDropout

    dropout, values = ByteDropout(0.1), torch.ones(64, dtype=torch.bfloat16)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(dropout(values).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert dropout(values).dtype is torch.bfloat16


def test_nothing_is_dropped_that_is_not_to_be() -> None:
    from services.edges.layers import ByteDropout

    values = torch.rand(7)
    assert ByteDropout(0.0)(values) is values
    assert ByteDropout(0.5).eval()(values) is values


def test_it_stands_where_dropout_stood_at_every_depth() -> None:
    from services.edges.layers import ByteDropout, use_byte_dropout

    nn = torch.nn
    model = nn.ModuleDict({"a": nn.Dropout(0.25), "b": nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))})
    use_byte_dropout(model)
    found = [layer.p for layer in model.modules() if isinstance(layer, ByteDropout)]
    assert found == [0.25, 0.5]
    assert not [layer for layer in model.modules() if isinstance(layer, nn.Dropout)]
