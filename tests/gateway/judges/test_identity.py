from __future__ import annotations

from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from gateway.judges.identity import MAX_CRITERIA, MAX_TEXT_CHARACTERS, limited


def test_an_identity_is_limited() -> None:
    names = [f"own_{number}" for number in range(50_000)]
    limits = dict.fromkeys(names, 1)
    stated = Identity(
        name="x" * 10**6, criteria=["", "y" * 101, *names, *names], capabilities=names, limits=limits
    )
    kept = limited(stated)
    assert kept.name == "x" * MAX_TEXT_CHARACTERS
    assert list(kept.criteria) == names[:MAX_CRITERIA]
    assert len(kept.capabilities) == len(kept.limits) == MAX_CRITERIA
    honest = Identity(name="a", version="1", contract="c", description="d", criteria=["b"], limits={"m": 1})
    assert limited(honest) == honest
