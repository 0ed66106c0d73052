"""What holds for every pair and every set of roles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest, GenerateResponse
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.role_sets import combine_votes
from services.judging.pairs.form import BatchForm, Vote
from services.judging.pairs.judge import SPEC, LlmPairJudge, PairLimits, ballot, vote
from tests.support.readers import Prefer, entries, shown

PREFERENCES = (pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND, pb.PREFERENCE_TIE)
MIRRORED = {
    pb.PREFERENCE_FIRST: pb.PREFERENCE_SECOND,
    pb.PREFERENCE_SECOND: pb.PREFERENCE_FIRST,
    pb.PREFERENCE_TIE: pb.PREFERENCE_TIE,
    pb.PREFERENCE_ABSTAIN: pb.PREFERENCE_ABSTAIN,
}


class Model:
    """A generation service in memory, for examples by the hundred."""

    def __init__(self, prefer: Prefer) -> None:
        self._prefer = prefer

    async def Generate(self, request: GenerateRequest) -> GenerateResponse:
        body = {"messages": [{"content": message.text} for message in request.messages]}
        text = json.dumps(entries(shown(body), self._prefer), ensure_ascii=False)
        completion = Completion(status=generation_service_pb2.COMPLETION_STATUS_OK, text=text, json=text)
        return GenerateResponse(completion=completion)


def compare(prefer: Prefer, **fields: Any) -> pb.ComparePairResponse:
    asker = Asker(cast("Any", Model(prefer)))
    judge = LlmPairJudge(asker, PromptLibrary(SPEC.prompts), PairLimits())
    return asyncio.run(judge.compare(pb.ComparePairRequest(**fields)))


def by_content(opinions: dict[str, str]) -> Prefer:
    """A consistent judge: each role prefers the text that it names, wherever it stands."""

    def prefer(seen: Any, role: str) -> str:
        wanted = opinions[role]
        return {seen.text_1: "1", seen.text_2: "2"}.get(wanted, "tie")

    return prefer


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[pb.Role], dict[str, str]]:
    numbers = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True))
    roles = [pb.Role(type=f"Reader {number}", description="Reads.") for number in numbers]
    opinions = {
        f"{role.type}: {role.description}": draw(st.sampled_from(["one text", "another", "neither"]))
        for role in roles
    }
    return roles, opinions


@settings(deadline=None, max_examples=60)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_roles_changes_no_vote(case: Any, random: Any) -> None:
    roles, opinions = case
    shuffled = random.sample(roles, len(roles))
    texts = {"first": "one text", "second": "another", "source": "s"}
    one = compare(by_content(opinions), roles=roles, **texts)
    other = compare(by_content(opinions), roles=shuffled, **texts)

    def by_type(response: pb.ComparePairResponse) -> dict[str, pb.Preference.ValueType]:
        return {vote.role.type: vote.preference for vote in response.votes}

    assert by_type(one) == by_type(other)
    assert one.preference == other.preference
    assert one.first_vote_share == pytest.approx(other.first_vote_share)


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from(pb.PresentationOrder.values()))
def test_swapping_the_texts_mirrors_the_result(case: Any, order: pb.PresentationOrder.ValueType) -> None:
    roles, opinions = case
    prefer = by_content(opinions)
    one = compare(prefer, roles=roles, first="one text", second="another", order=order)
    other = compare(prefer, roles=roles, first="another", second="one text", order=order)
    assert [MIRRORED[vote.preference] for vote in one.votes] == [vote.preference for vote in other.votes]
    assert MIRRORED[one.preference] == other.preference
    assert one.first_vote_share == pytest.approx(1 - other.first_vote_share)
    assert not any(vote.inconsistent for vote in one.votes)


BALLOTS = st.builds(
    lambda preference, confidence: pb.Ballot(
        preference=preference,
        abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED
        if preference == pb.PREFERENCE_ABSTAIN
        else verdict_pb2.ABSTAIN_REASON_UNSPECIFIED,
        confidence=None if preference == pb.PREFERENCE_ABSTAIN else confidence,
    ),
    st.sampled_from([*PREFERENCES, pb.PREFERENCE_ABSTAIN]),
    st.none() | st.floats(0.01, 1.0),
)


@given(st.lists(BALLOTS, min_size=1, max_size=2))
def test_a_vote_stands_where_all_ballots_agree(ballots: list[pb.Ballot]) -> None:
    result = vote(None, ballots)
    said = [one.preference for one in ballots]
    if pb.PREFERENCE_ABSTAIN in said:
        assert result.preference == pb.PREFERENCE_ABSTAIN
        assert result.abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
        assert not result.inconsistent
    else:
        assert result.inconsistent == (len(set(said)) > 1)
        assert result.preference == (pb.PREFERENCE_TIE if result.inconsistent else said[0])
        assert result.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    assert result.HasField("confidence") == all(one.HasField("confidence") for one in ballots)


@given(st.lists(BALLOTS.map(lambda one: vote(None, [one])), min_size=1, max_size=9))
def test_the_result_is_what_the_votes_add_up_to(votes: list[pb.RoleVote]) -> None:
    result = combine_votes(votes)
    counts = {value: sum(one.preference == value for one in votes) for value in MIRRORED}
    first, second = counts[pb.PREFERENCE_FIRST], counts[pb.PREFERENCE_SECOND]
    cast_votes = [one for one in votes if one.preference != pb.PREFERENCE_ABSTAIN]
    if not cast_votes:
        assert result.preference == pb.PREFERENCE_ABSTAIN
        assert not result.HasField("first_vote_share")
        assert not result.HasField("first_drpe_score")
        return
    assert result.first_vote_share == pytest.approx((first + counts[pb.PREFERENCE_TIE] / 2) / len(cast_votes))
    assert result.preference == PREFERENCES[0 if first > second else 1 if second > first else 2]
    scores = (
        (pb.PREFERENCE_FIRST, result.first_drpe_score if result.HasField("first_drpe_score") else None),
        (pb.PREFERENCE_SECOND, result.second_drpe_score if result.HasField("second_drpe_score") else None),
    )
    for preference, score in scores:
        own = [one for one in votes if one.preference == preference]
        assert (score is not None) == all(one.HasField("confidence") for one in cast_votes)
        assert score is None or score == pytest.approx(sum(one.confidence for one in own))


JSON: Callable[..., Any] = st.recursive
ANYTHING = JSON(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["role_1", "reason", "vote", "x"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.integers(1, 5), st.dictionaries(st.sampled_from([f"role_{n}" for n in range(7)]), ANYTHING))
def test_every_role_gets_a_vote_or_an_abstention_whatever_is_answered(
    count: int, entries: Mapping[str, Any]
) -> None:
    readings = BatchForm(count).parse(entries)
    assert len(readings) == count
    for reading in readings:
        one = ballot(pb.PRESENTATION_ORDER_SWAPPED, reading)
        assert (one.preference == pb.PREFERENCE_ABSTAIN) == (one.abstain_reason != 0)
        assert one.preference in PREFERENCES or not isinstance(reading, Vote)
        assert one.rationale or isinstance(reading, Vote)
