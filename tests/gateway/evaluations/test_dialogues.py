"""EvaluateDialogues over real gRPC, with an author and judges made of functions."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import dialogue_pb2, error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    DialogueScript,
    EvaluateDialoguesRequest,
    EvaluateDialoguesResponse,
    GivenReply,
    ModelPair,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import ReplyRequest, ReplyResponse
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest, ComparePairResponse
from dramaturg.api.judging.v1.rating_judge_service_pb2 import (
    RateReplyRequest,
    RateReplyResponse,
    Rating,
)
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse, TextScore
from dramaturg.client import DramaturgClient
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from tests.support.evaluations import CALL, gateway_target

TASK = SimulationTask(id="t1", name="Terminal", description="Act as a terminal. My first command is pwd.")
USER, SIMULATOR = dialogue_pb2.SPEAKER_USER, dialogue_pb2.SPEAKER_SIMULATOR


def script(*texts: str, **fields: Any) -> DialogueScript:
    utterances = [
        Utterance(speaker=SIMULATOR if index % 2 else USER, text=text) for index, text in enumerate(texts)
    ]
    return DialogueScript(
        **{
            "id": "s1",
            "task": TASK,
            "utterances": utterances,
            "subset": dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY,
            "turn": (len(texts) + 1) // 2,
            **fields,
        }
    )


def asked(**fields: Any) -> EvaluateDialoguesRequest:
    return EvaluateDialoguesRequest(
        **{"script": script(TASK.description, "/home", "ls"), "models": ["a", "b"], **fields}
    )


async def reply(request: ReplyRequest) -> ReplyResponse:
    model = request.options.model
    if model == "refuser":
        return ReplyResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED, provenance=CALL)
    return ReplyResponse(text=f"listing of {model}", provenance=CALL)


async def rate(request: RateReplyRequest) -> RateReplyResponse:
    return RateReplyResponse(rating=Rating(value=len(request.response), provenance=CALL))


async def compare(request: ComparePairRequest) -> ComparePairResponse:
    return ComparePairResponse(
        preference=pairs_pb.PREFERENCE_FIRST,
        votes=[pairs_pb.RoleVote(preference=pairs_pb.PREFERENCE_FIRST)],
        provenance=CALL,
    )


async def score(request: ScoreTextsRequest) -> ScoreTextsResponse:
    scores = [TextScore(value=len(text) / 100) for text in request.texts]
    return ScoreTextsResponse(attribute="length", scores=scores, provenance=CALL)


def roles(**methods: Any) -> Any:
    chosen = {"Reply": reply, "RateReply": rate, "ComparePair": compare, **methods}
    scorer = {"text-scorer": {"ScoreTexts": chosen["ScoreTexts"]}} if "ScoreTexts" in chosen else {}
    return {
        **scorer,
        "author": {"Reply": chosen["Reply"]},
        "rating-judge": {"RateReply": chosen["RateReply"]},
        "pair-judge": {"ComparePair": chosen["ComparePair"]},
    }


async def short(request: ReplyRequest) -> ReplyResponse:
    return ReplyResponse(text="x" * 3 + request.options.model, provenance=CALL)


async def events(
    request: EvaluateDialoguesRequest, settings: Any = None, **methods: Any
) -> list[EvaluateDialoguesResponse]:
    async with (
        gateway_target(roles(**methods), **(settings or {})) as target,
        DramaturgClient(target) as client,
    ):
        return [event async for event in client.evaluate_dialogues(request, timeout=20)]


async def result(request: EvaluateDialoguesRequest, settings: Any = None, **methods: Any) -> DialogueResult:
    return (await events(request, settings, **methods))[-1].result


async def refused(request: EvaluateDialoguesRequest) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        await events(request)
    return raised.value


async def test_every_reply_is_rated_and_every_pair_compared() -> None:
    seen: dict[str, list[Any]] = {"reply": [], "rate": [], "compare": []}

    async def keep_reply(request: ReplyRequest) -> ReplyResponse:
        seen["reply"].append(request)
        return await short(request)

    async def keep_rate(request: RateReplyRequest) -> RateReplyResponse:
        seen["rate"].append(request)
        return await rate(request)

    async def keep_compare(request: ComparePairRequest) -> ComparePairResponse:
        seen["compare"].append(request)
        return await compare(request)

    request = asked(
        models=["a", "bbbb"],
        replies=[GivenReply(model="person", text="a file")],
        pairs=[ModelPair(first_model="a", second_model="person")],
        rules=pairs_pb.ComparisonRules(forced_choice=True),
        tags={"kind": "stateful"},
    )
    found = await events(request, Reply=keep_reply, RateReply=keep_rate, ComparePair=keep_compare)
    assert found[0].accepted.assessment_count == 3 + 3 + 1
    assert [one.role for one in found[0].accepted.judges] == ["author", "rating-judge", "pair-judge"]
    kinds = [event.WhichOneof("event") for event in found]
    assert (kinds.count("reply"), kinds.count("rating"), kinds.count("comparison")) == (3, 3, 1)
    assert kinds[-1] == "result"
    whole = found[-1].result
    assert whole.script == request.script
    assert dict(whole.tags) == {"kind": "stateful"}
    assert [(one.model, one.text) for one in whole.replies] == [
        ("a", "xxxa"),
        ("bbbb", "xxxbbbb"),
        ("person", "a file"),
    ]
    assert [(one.model, one.judge, one.rating.value) for one in whole.ratings] == [
        ("a", "fake", 4),
        ("bbbb", "fake", 7),
        ("person", "fake", 6),
    ]
    assert [one.comparison.preference for one in whole.comparisons] == [pairs_pb.PREFERENCE_FIRST]
    # Two replies were bought, three ratings and one comparison.
    assert whole.usage.provider_call_count == 6
    (compared,) = seen["compare"]
    assert (compared.first, compared.second) == ("xxxa", "a file")
    assert compared.order == pairs_pb.PRESENTATION_ORDER_BOTH
    assert compared.rules == pairs_pb.ComparisonRules(forced_choice=True)
    assert list(compared.dialogue.utterances) == list(request.script.utterances)
    assert list(seen["rate"][0].utterances) == list(request.script.utterances)
    # Who judges is not told who wrote.
    assert all("bbbb" not in str(one.options) for one in seen["rate"])
    assert {one.options.model for one in seen["reply"]} == {"a", "bbbb"}
    assert not seen["reply"][0].options.HasField("sampling")


async def test_options_are_those_of_the_judges_and_the_repeat_is_everybodys() -> None:
    seen: dict[str, JudgeOptions] = {}

    async def keep_reply(request: ReplyRequest) -> ReplyResponse:
        seen["reply"] = request.options
        return await reply(request)

    async def keep_rate(request: RateReplyRequest) -> RateReplyResponse:
        seen["rate"] = request.options
        return await rate(request)

    async def keep_compare(request: ComparePairRequest) -> ComparePairResponse:
        seen["compare"] = request.options
        return await compare(request)

    async def keep_score(request: ScoreTextsRequest) -> ScoreTextsResponse:
        seen["score"] = request.options
        return await score(request)

    request = asked(
        models=["a"],
        replies=[GivenReply(model="person", text="a file")],
        pairs=[ModelPair(first_model="a", second_model="person")],
        judges=[JudgeSelection(role="pair-judge", model="own")],
        options=JudgeOptions(model="judge", repeat_index=4, sampling=Sampling(top_p=0.5)),
        sampling=Sampling(temperature=0.9),
        replies_scored=True,
    )
    await events(
        request, Reply=keep_reply, RateReply=keep_rate, ComparePair=keep_compare, ScoreTexts=keep_score
    )
    shared = JudgeOptions(model="judge", repeat_index=4, sampling=Sampling(top_p=0.5))
    assert seen["rate"] == seen["score"] == shared
    shared.model = "own"
    assert seen["compare"] == shared
    assert seen["reply"] == JudgeOptions(model="a", repeat_index=4, sampling=Sampling(temperature=0.9))


async def test_a_reply_that_cannot_be_used_makes_its_judgements_abstain_for_its_reason() -> None:
    request = asked(
        models=["a", "refuser"],
        pairs=[ModelPair(first_model="refuser", second_model="a")],
        unusable_outputs_abstain=True,
    )
    whole = await result(request, Reply=lambda one: reply(one), RateReply=lambda one: never(one))
    assert whole.replies[1].abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    assert whole.ratings[1].rating.abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    assert not whole.ratings[1].rating.HasField("value")
    (compared,) = whole.comparisons
    assert compared.comparison.preference == pairs_pb.PREFERENCE_ABSTAIN
    assert compared.comparison.votes[0].abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    assert whole.usage.provider_call_count == 2


async def test_a_refusal_is_rated_lowest_and_loses_without_a_judge() -> None:
    async def refuse(request: ReplyRequest) -> ReplyResponse:
        if request.options.model == "a":
            return await reply(request)
        return ReplyResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED, text="No.", provenance=CALL)

    pairs = [
        ModelPair(first_model=first, second_model=second)
        for first, second in (("x", "a"), ("a", "y"), ("x", "y"))
    ]
    request = asked(models=["a", "x", "y"], pairs=pairs, replies_scored=True)
    whole = await result(request, Reply=refuse, RateReply=five, ComparePair=unasked, ScoreTexts=score)
    refused = verdict_pb2.ABSTAIN_REASON_REFUSED
    assert [one.failure_reason for one in whole.replies] == [0, refused, refused]
    assert not any(one.abstain_reason for one in whole.replies)
    assert [one.rating.value for one in whole.ratings] == [5, 1, 1]
    assert [one.comparison.preference for one in whole.comparisons] == [
        pairs_pb.PREFERENCE_SECOND,
        pairs_pb.PREFERENCE_FIRST,
        pairs_pb.PREFERENCE_TIE,
    ]
    # A refusal has no degree of an attribute.
    assert [one.score.abstain_reason for one in whole.scores] == [0, refused, refused]
    rows = [row for row in flatten(RunSample(dialogue=whole)) if row.model == "x"]
    assert [(row.measure, row.value, row.failure_reason) for row in rows if not row.abstain_reason] == [
        ("rating", 1, refused),
        ("win", 0, refused),
        ("win", 0.5, refused),
    ]


async def five(request: RateReplyRequest) -> RateReplyResponse:
    return RateReplyResponse(rating=Rating(value=5))


async def unasked(request: ComparePairRequest) -> ComparePairResponse:
    raise AssertionError("a refusal is compared")


async def test_a_reply_that_is_cut_off_is_judged_as_it_stands_and_counted() -> None:
    async def cut(request: ReplyRequest) -> ReplyResponse:
        return ReplyResponse(
            text="ninechars", abstain_reason=verdict_pb2.ABSTAIN_REASON_TRUNCATED, provenance=CALL
        )

    whole = await result(asked(models=["a"]), Reply=cut)
    assert whole.replies[0].failure_reason == verdict_pb2.ABSTAIN_REASON_TRUNCATED
    assert whole.ratings[0].rating.value == 9
    (row,) = flatten(RunSample(dialogue=whole))
    assert (row.value, row.failure_reason) == (9, verdict_pb2.ABSTAIN_REASON_TRUNCATED)
    whole = await result(asked(models=["a"], unusable_outputs_abstain=True), Reply=cut, RateReply=unrated)
    assert whole.ratings[0].rating.abstain_reason == verdict_pb2.ABSTAIN_REASON_TRUNCATED


async def unrated(request: RateReplyRequest) -> RateReplyResponse:
    raise AssertionError("a missing reply is rated")


async def never(request: RateReplyRequest) -> RateReplyResponse:
    assert "refuser" not in request.response
    return RateReplyResponse(rating=Rating(value=5))


async def test_an_empty_reply_is_a_reply() -> None:
    async def nothing(request: ReplyRequest) -> ReplyResponse:
        return ReplyResponse(provenance=CALL)

    async def nine(request: RateReplyRequest) -> RateReplyResponse:
        return RateReplyResponse(rating=Rating(value=9))

    whole = await result(asked(models=["a"]), Reply=nothing, RateReply=nine)
    assert whole.ratings[0].rating.value == 9


@pytest.mark.parametrize(
    ("rating", "reason"),
    [
        (Rating(value=11), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (Rating(value=0), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (Rating(value=math.nan), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (Rating(rationale="hm"), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (
            Rating(value=5, abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED),
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
        ),
        (
            Rating(abstain_reason=verdict_pb2.ABSTAIN_REASON_TRUNCATED),
            verdict_pb2.ABSTAIN_REASON_TRUNCATED,
        ),
    ],
)
async def test_an_unsound_rating_is_an_abstention(rating: Rating, reason: int) -> None:
    async def unsound(request: RateReplyRequest) -> RateReplyResponse:
        return RateReplyResponse(rating=rating)

    whole = await result(asked(models=["a"]), RateReply=unsound)
    normalized = whole.ratings[0].rating
    assert (normalized.HasField("value"), normalized.abstain_reason) == (False, reason)
    assert normalized.rationale == rating.rationale


async def test_judges_that_fail_abstain_and_the_rest_stands() -> None:
    async def fail(request: Any) -> Any:
        raise ServiceError(
            grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE, "gone"
        )

    async def shapeless(request: Any) -> ComparePairResponse:
        return ComparePairResponse()

    pairs = [ModelPair(first_model="a", second_model="b")]
    whole = await result(asked(pairs=pairs), RateReply=fail)
    assert [one.rating.abstain_reason for one in whole.ratings] == [
        verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE
    ] * 2
    assert "gone" in whole.ratings[0].rating.rationale
    assert whole.comparisons[0].comparison.preference == pairs_pb.PREFERENCE_FIRST
    whole = await result(asked(pairs=pairs), ComparePair=shapeless, RateReply=never)
    assert whole.comparisons[0].comparison.preference == pairs_pb.PREFERENCE_ABSTAIN
    whole = await result(asked(), Reply=fail, RateReply=never)
    assert {one.abstain_reason for one in whole.replies} == {verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE}


async def test_only_what_is_needed_must_be_served() -> None:
    async with (
        gateway_target({"pair-judge": {"ComparePair": compare}}) as target,
        DramaturgClient(target) as client,
    ):
        replies = [GivenReply(model=model, text=model) for model in ("a", "b")]
        given = asked(
            models=[],
            replies=replies,
            ratings_omitted=True,
            pairs=[ModelPair(first_model="a", second_model="b")],
        )
        found = [event async for event in client.evaluate_dialogues(given)]
        assert not found[-1].result.ratings
        assert len(found[-1].result.comparisons) == 1
        given.ratings_omitted = False
        with pytest.raises(ServiceError) as raised:
            [event async for event in client.evaluate_dialogues(given)]
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND
    assert raised.value.metadata["role"] == "rating-judge"


async def test_bad_requests_are_refused_with_every_field() -> None:
    error = await refused(
        asked(
            script=script("pwd", "/home"),
            models=["a", "a"],
            replies=[GivenReply(model="a")],
            pairs=[
                ModelPair(first_model="a", second_model="c"),
                ModelPair(first_model="a", second_model="a"),
                ModelPair(first_model="c", second_model="a"),
            ],
            judges=[JudgeSelection(role="challenge-judge")],
        )
    )
    assert [violation.field for violation in error.violations] == [
        "script.utterances",
        "models[1]",
        "replies[0].model",
        "pairs[0].second_model",
        "pairs[1]",
        "pairs[2].first_model",
        "pairs[2]",
        "judges[0].role",
    ]
    assert [one.field for one in (await refused(asked(models=[]))).violations] == ["models"]


async def test_what_is_too_long_is_refused_by_field() -> None:
    turns = ["x"] * (2 * 200 - 1)
    assert [one.field for one in (await refused(asked(script=script(*turns)))).violations] == [
        "script.utterances"
    ]
    whole = script("pwd", "/home", "x" * 1_000_000)
    (violation,) = (await refused(asked(script=whole))).violations
    assert violation.field == "script.utterances[2].text"
    assert "200000" in violation.description


async def test_every_usable_reply_is_scored_where_that_is_asked_for() -> None:
    seen: list[ScoreTextsRequest] = []

    async def keep(request: ScoreTextsRequest) -> ScoreTextsResponse:
        seen.append(request)
        return await score(request)

    request = asked(
        models=["a", "refuser"],
        replies=[GivenReply(model="person", text="")],
        judges=[JudgeSelection(role="text-scorer", judge="fake", model="large")],
        replies_scored=True,
    )
    found = await events(request, Reply=reply, ScoreTexts=keep)
    assert found[0].accepted.assessment_count == 3 + 3 + 3
    assert [one.role for one in found[0].accepted.judges][-1] == "text-scorer"
    assert sum(event.HasField("score") for event in found) == 3
    whole = found[-1].result
    assert [(one.model, one.judge, one.attribute) for one in whole.scores] == [
        ("a", "fake", "length"),
        ("refuser", "fake", ""),
        ("person", "fake", "length"),
    ]
    assert [one.score for one in whole.scores] == [
        TextScore(value=len("listing of a") / 100),
        TextScore(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED),
        TextScore(value=0),
    ]
    assert whole.scores[0].provenance.registered_name == "fake"
    # A scorer sees a reply and no more; an empty one is a reply.
    assert sorted(tuple(one.texts) for one in seen) == [("",), ("listing of a",)]
    assert {one.options.model for one in seen} == {"large"}
    # Two replies asked for, two ratings, two scores.
    assert whole.usage.provider_call_count == 6


async def test_a_registered_scorer_that_nobody_asks_for_is_not_called() -> None:
    async def never(request: ScoreTextsRequest) -> ScoreTextsResponse:
        raise AssertionError

    found = await result(asked(), ScoreTexts=never)
    assert not found.scores


async def test_without_a_scorer_nobody_scores() -> None:
    error = await refused(asked(replies_scored=True))
    assert error.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND
    assert error.metadata["role"] == "text-scorer"
    named = await refused(asked(judges=[JudgeSelection(role="text-scorer", judge="fake")]))
    assert [one.field for one in named.violations] == ["judges[0].role"]


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([], verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        ([TextScore()], verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        ([TextScore(value=0.1), TextScore(value=0.2)], verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        ([TextScore(value=-0.1)], verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        ([TextScore(value=math.nan)], verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (
            [TextScore(value=0.5, abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED)],
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
        ),
        (
            [TextScore(abstain_reason=verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED)],
            verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
        ),
    ],
)
async def test_a_score_that_is_none_abstains(
    scores: list[TextScore], reason: verdict_pb2.AbstainReason.ValueType
) -> None:
    async def answer(request: ScoreTextsRequest) -> ScoreTextsResponse:
        return ScoreTextsResponse(attribute="length", scores=scores)

    found = await result(asked(models=["a"], replies_scored=True), ScoreTexts=answer)
    assert [one.score for one in found.scores] == [TextScore(abstain_reason=reason)]


async def test_a_scorer_that_fails_touches_nothing_else() -> None:
    async def fail(request: ScoreTextsRequest) -> ScoreTextsResponse:
        raise RuntimeError("broken")

    found = await result(asked(models=["a"], replies_scored=True), Reply=short, ScoreTexts=fail)
    assert found.scores[0].score.abstain_reason == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    assert found.ratings[0].rating.HasField("value")
