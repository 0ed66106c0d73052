from __future__ import annotations

import hashlib

from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from gateway.judges.identity import (
    MAX_CRITERIA,
    MAX_PROMPT_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    limited,
    stated_texts,
)


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


def test_texts_of_prompts_are_known_by_their_own_hash_and_bounded() -> None:
    identity = Identity(prompts={"judge": "ab" * 32})
    identity.prompt_texts["judge"] = "Judge."
    identity.prompt_texts["long"] = "x" * (MAX_PROMPT_CHARACTERS + 1)
    assert stated_texts(identity) == {hashlib.sha256(b"Judge.").hexdigest(): "Judge."}
    assert not limited(identity).prompt_texts
