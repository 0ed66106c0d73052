"""AlignmentService over real gRPC."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import pytest

from dramaturg.api.alignment.v1 import accuracy_pb2, agreement_pb2, correlation_pb2, ranking_pb2, text_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED, ABSTAIN_REASON_UNPARSABLE
from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.server import Contract
from dramaturg.service.threads import Checkpoint, StoppedError
from dramaturg.testing import serve
from services.alignment import servicer
from services.alignment.bootstrap import Resampling
from services.alignment.servicer import Workers
from services.alignment.text.bertscore import BERTSCORE, GREEDY

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

    OpenAlignment = Callable[..., AbstractAsyncContextManager[AlignmentServiceAsyncStub]]


def scored_items(count: int, measures: int = 1, seed: int = 1) -> correlation_pb2.CorrelateScoresRequest:
    random = Random(seed)
    request = correlation_pb2.CorrelateScoresRequest()
    for _ in range(count):
        human = random.gauss(0, 1)
        scores = {f"m{index}": human + random.gauss(0, 1 + index) for index in range(measures)}
        request.items.add(human=human, scores=scores)
    return request


async def test_accuracy(alignment: AlignmentServiceAsyncStub) -> None:
    request = accuracy_pb2.MeasureAccuracyRequest(macro_tag="level")
    rows = [("1", "1", "easy"), ("1", "2", "hard"), ("2", "2", "hard"), ("2", "", "easy"), ("1", "", "hard")]
    for gold, predicted, level in rows:
        request.items.add(gold=gold, predicted=predicted, tags={"level": level})
    request.items[3].abstain_reason = ABSTAIN_REASON_REFUSED
    request.groupings.add()
    request.groupings.add(tags=["level"])
    request.subsets.add(name="hard", tag="level", values=["hard"])
    response = await alignment.MeasureAccuracy(request)
    assert response.abstention_policy == accuracy_pb2.ABSTENTION_POLICY_EXCLUDED
    assert [(dict(group.tags), group.subset) for group in response.groups] == [
        *(({}, name) for name in ("all", "hard")),
        *(({"level": "easy"}, name) for name in ("all", "hard")),
        *(({"level": "hard"}, name) for name in ("all", "hard")),
    ]
    whole, _, _, nothing, *_ = response.groups
    assert (whole.item_count, whole.answered_count, whole.correct_count) == (5, 3, 2)
    assert dict(whole.abstentions) == {"ABSTAIN_REASON_REFUSED": 1, "ABSTAIN_REASON_UNSPECIFIED": 1}
    assert whole.accuracy.value == pytest.approx(2 / 3)
    assert whole.accuracy_abstentions_wrong.value == pytest.approx(2 / 5)
    assert whole.macro_accuracy.value == pytest.approx((1 + 1 / 2) / 2)
    assert whole.majority_baseline.value == pytest.approx(3 / 5)
    assert [(cell.gold, cell.predicted, cell.count) for cell in whole.confusion] == [
        ("1", "", 1),
        ("1", "1", 1),
        ("1", "2", 1),
        ("2", "", 1),
        ("2", "2", 1),
    ]
    assert not nothing.accuracy.HasField("value")
    assert nothing.accuracy.undefined == "there are no items"


async def test_no_macro_figure_unless_asked_for(alignment: AlignmentServiceAsyncStub) -> None:
    request = accuracy_pb2.MeasureAccuracyRequest(abstention_policy=accuracy_pb2.ABSTENTION_POLICY_WRONG)
    request.items.add(gold="x", predicted="x")
    response = await alignment.MeasureAccuracy(request)
    assert not response.groups[0].HasField("macro_accuracy")
    assert response.abstention_policy == accuracy_pb2.ABSTENTION_POLICY_WRONG


async def test_contradictory_accuracy_requests_are_refused(alignment: AlignmentServiceAsyncStub) -> None:
    request = accuracy_pb2.MeasureAccuracyRequest()
    request.items.add(gold="x", predicted="x", abstain_reason=ABSTAIN_REASON_UNPARSABLE)
    request.subsets.add(name="hard", tag="level", values=["hard"])
    request.subsets.add(name="hard", tag="level", values=["easy"])
    request.subsets.add(name="all", tag="level", values=["easy"])
    assert await violations(alignment.MeasureAccuracy(request)) == [
        "subsets[1].name",
        "subsets[2].name",
        "items[0].abstain_reason",
    ]


async def test_agreement_by_group(alignment: AlignmentServiceAsyncStub) -> None:
    request = agreement_pb2.MeasureAgreementRequest(group_tag="format", resample_count=200, seed=3)
    for index in range(30):
        item = request.items.add(id=str(index), tags={"format": "story" if index % 2 else "naive"})
        for annotator, label in (("a", index % 3), ("b", index % 3 if index % 5 else 0)):
            item.annotations.add(annotator=annotator, labels=[str(label)])
    response = await alignment.MeasureAgreement(request)
    assert [group.group for group in response.groups] == ["", "naive", "story"]
    whole = response.groups[0]
    assert whole.item_count == 30
    assert (whole.pairs[0].first_annotator, whole.pairs[0].second_annotator) == ("a", "b")
    for estimate in (
        whole.fleiss_kappa,
        whole.krippendorff_alpha,
        whole.gwet_ac1,
        whole.observed_agreement,
        whole.pairs[0].cohen_kappa,
    ):
        assert estimate.lower <= estimate.value <= estimate.upper
        assert estimate.interval_method.startswith("jackknife, student's t")
    assert whole.observed_agreement.value == pytest.approx(26 / 30)
    assert sum(whole.majority_labels.values()) == 30


async def test_labels_that_are_sets_and_no_intervals(alignment: AlignmentServiceAsyncStub) -> None:
    request = agreement_pb2.MeasureAgreementRequest(distance=agreement_pb2.LABEL_DISTANCE_MASI)
    for first, second in ((["x", "y"], ["y", "x", "x"]), (["x"], ["x", "y"]), (["z"], ["z"])):
        item = request.items.add()
        item.annotations.add(annotator="a", labels=first)
        item.annotations.add(annotator="b", labels=second)
    (group,) = (await alignment.MeasureAgreement(request)).groups
    assert dict(group.majority_labels) == {"x|y": 1, "": 1, "z": 1}
    assert not group.krippendorff_alpha.HasField("lower")
    assert group.krippendorff_alpha.interval_method == ""
    assert group.krippendorff_alpha.value > group.fleiss_kappa.value


async def test_broken_annotations_are_all_named(alignment: AlignmentServiceAsyncStub) -> None:
    request = agreement_pb2.MeasureAgreementRequest(distance=agreement_pb2.LABEL_DISTANCE_ORDINAL)
    item = request.items.add()
    for annotator, labels in (("a", ["1"]), ("a", ["2"]), ("b", ["high"]), ("c", ["1", "2"]), ("d", ["nan"])):
        item.annotations.add(annotator=annotator, labels=labels)
    assert await violations(alignment.MeasureAgreement(request)) == [
        "items[0].annotations[1].annotator",
        "items[0].annotations[2].labels",
        "items[0].annotations[3].labels",
        "items[0].annotations[4].labels",
    ]


async def test_correlations(alignment: AlignmentServiceAsyncStub) -> None:
    request = scored_items(40, measures=3)
    request.resample_count = 200
    request.confidence_level = 0.9
    for item in request.items:
        item.scores["constant"] = 1.0
    response = await alignment.CorrelateScores(request)
    assert [one.measure for one in response.measures] == ["constant", "m0", "m1", "m2"]
    assert response.measures[0].pearson.undefined == "all scores of constant are equal"
    assert not response.measures[0].pearson.HasField("value")
    best = response.measures[1]
    assert best.pearson.lower < best.pearson.value < best.pearson.upper
    assert len(response.differences) == 6
    assert not response.differences[0].HasField("williams_p")
    assert 0 <= response.differences[-1].williams_p <= 1
    assert response == await alignment.CorrelateScores(request)


async def test_too_many_measures_are_refused(alignment: AlignmentServiceAsyncStub) -> None:
    request = correlation_pb2.CorrelateScoresRequest()
    for start in (0, 150):
        request.items.add(human=1.0, scores={f"m{start + index}": 1.0 for index in range(150)})
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await alignment.CorrelateScores(request)
    error = from_rpc_error(refused.value)
    assert (error.code, error.reason_name) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "ERROR_REASON_TOO_LARGE",
    )
    assert error.metadata["limit"] == "200"


async def test_limits_of_the_contract_hold(alignment: AlignmentServiceAsyncStub) -> None:
    request = scored_items(3)
    request.items[1].human = float("nan")
    request.resample_count = 50_000
    assert await violations(alignment.CorrelateScores(request)) == ["items[1].human", "resample_count"]


async def test_texts(alignment: AlignmentServiceAsyncStub) -> None:
    request = text_pb2.ScoreTextRequest()
    request.pairs.add(candidate="the cat sat on the mat", reference="the cat is on the mat")
    request.pairs.add(candidate="", reference="the cat")
    response = await alignment.ScoreText(request)
    first, second = response.scores
    assert first.scores["rouge-2"] == pytest.approx(0.6)
    vectors = ("embedding", *GREEDY, *BERTSCORE)
    without = "no EmbeddingService is configured (setting embedding_target)"
    # WordNet may be installed or not.
    undefined = {metric: why for metric, why in first.undefined.items() if metric != "meteor-wordnet"}
    assert undefined == dict.fromkeys(vectors, without)
    assert dict(second.scores) == {"length": 0}
    assert len(response.methods) == 27


async def test_unknown_metrics_are_refused(alignment: AlignmentServiceAsyncStub) -> None:
    request = text_pb2.ScoreTextRequest(metrics=["bleu", "blue"])
    request.pairs.add(candidate="a", reference="a")
    assert await violations(alignment.ScoreText(request)) == ["metrics[1]"]


class FirstLetter(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Gives texts with the same first letter the same vector."""

    async def Embed(
        self, request: embedding_service_pb2.EmbedRequest, context: Any
    ) -> embedding_service_pb2.EmbedResponse:
        response = embedding_service_pb2.EmbedResponse(model=request.model or "letters", dimension=26)
        for text in request.texts:
            vector = [0.0] * 26
            vector[ord(text[0]) - ord("a")] = 1.0
            response.embeddings.add(values=vector)
        return response

    async def EmbedTokens(
        self, request: embedding_service_pb2.EmbedTokensRequest, context: Any
    ) -> embedding_service_pb2.EmbedTokensResponse:
        """Gives words with the same first letter the same vector."""
        response = embedding_service_pb2.EmbedTokensResponse(model=request.model or "letters", dimension=26)
        for text in request.texts:
            words = text.split()
            places = [ord(word[0]) - ord("a") for word in words]
            values = [float(axis == place) for place in places for axis in range(26)]
            response.texts.add(tokens=words, values=values, truncated=len(words) > 3)
        return response


def embedding_contract() -> Contract:
    return Contract.make(
        embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"],
        embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server,
        FirstLetter(),
        name="letters",
        version="1.0.0",
        description="First letters.",
    )


async def test_sentence_vectors_come_from_the_embedding_service(open_alignment: OpenAlignment) -> None:
    request = text_pb2.ScoreTextRequest(metrics=["embedding"])
    for candidate, reference in (("bake", "boil"), ("bake", "fry"), ("", "fry")):
        request.pairs.add(candidate=candidate, reference=reference)
    async with (
        serve(embedding_contract()) as server,
        open_alignment(embedding_target=server.target, embedding_model="letters-2") as stub,
    ):
        response = await stub.ScoreText(request)
    assert [dict(one.scores) for one in response.scores] == [{"embedding": 1.0}, {"embedding": 0.0}, {}]
    assert response.scores[2].undefined == {"embedding": "the candidate is empty"}
    assert "letters-2" in response.methods["embedding"]


async def test_token_vectors_come_from_the_embedding_service(open_alignment: OpenAlignment) -> None:
    metrics = ["embedding-greedy", "embedding-greedy-precision", "embedding-greedy-recall"]
    request = text_pb2.ScoreTextRequest(metrics=metrics)
    request.pairs.add(candidate="bake it", reference="boil eggs in water")
    request.pairs.add(candidate="bake", reference=" ")
    async with (
        serve(embedding_contract()) as server,
        open_alignment(embedding_target=server.target, embedding_model="letters-2") as stub,
    ):
        response = await stub.ScoreText(request)
    assert dict(response.scores[0].scores) == pytest.approx(
        {"embedding-greedy-precision": 1, "embedding-greedy-recall": 0.5, "embedding-greedy": 2 / 3}
    )
    assert response.scores[1].undefined == dict.fromkeys(metrics, "the reference is empty")
    assert all(
        "letters-2" in method and "1 of 2 texts were longer" in method and "not BERTScore" in method
        for method in response.methods.values()
    )


async def test_a_service_without_tokens_leaves_their_metrics_undefined(
    open_alignment: OpenAlignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(FirstLetter, "EmbedTokens")
    request = text_pb2.ScoreTextRequest(metrics=["embedding", "embedding-greedy"])
    request.pairs.add(candidate="bake", reference="boil")
    async with (
        serve(embedding_contract()) as server,
        open_alignment(embedding_target=server.target) as stub,
    ):
        response = await stub.ScoreText(request)
    assert dict(response.scores[0].scores) == {"embedding": 1}
    undefined = response.scores[0].undefined["embedding-greedy"]
    assert undefined.startswith("EmbeddingService failed with UNIMPLEMENTED")


async def test_an_embedding_service_that_is_gone_leaves_the_rest(open_alignment: OpenAlignment) -> None:
    request = text_pb2.ScoreTextRequest(metrics=["embedding", "rouge-1"])
    request.pairs.add(candidate="a b", reference="a c")
    async with serve(embedding_contract()) as server:
        gone = server.target
    async with open_alignment(embedding_target=gone) as stub:
        response = await stub.ScoreText(request)
    assert dict(response.scores[0].scores) == {"rouge-1": pytest.approx(0.5)}
    assert response.scores[0].undefined["embedding"].startswith("EmbeddingService failed with UNAVAILABLE")


class Endless:
    """Stands for a computation of hours; knows when it began and when it was stopped."""

    def __init__(self) -> None:
        self.started, self.stopped = threading.Event(), threading.Event()

    def __call__(self, human: object, measures: object, resampling: Resampling, levels: object) -> NoReturn:
        self.run(resampling.checkpoint)

    def run(self, checkpoint: Checkpoint) -> NoReturn:
        self.started.set()
        try:
            while True:
                checkpoint()
                time.sleep(0.001)
        except StoppedError:
            self.stopped.set()
            raise


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    work = Endless()
    monkeypatch.setattr(servicer, "correlate", work)
    return work


async def happens(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, 30)


async def test_a_call_that_is_given_up_frees_its_thread(
    open_alignment: OpenAlignment, endless: Endless
) -> None:
    async with open_alignment(workers=1) as stub:
        call = stub.CorrelateScores(scored_items(3))
        assert await happens(endless.started)
        call.cancel()
        assert await happens(endless.stopped)
        assert (await stub.ScoreText(length_request(), timeout=30)).scores


async def test_a_deadline_ends_the_work(open_alignment: OpenAlignment, endless: Endless) -> None:
    async with open_alignment(workers=1) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stub.CorrelateScores(scored_items(3), timeout=0.5)
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await happens(endless.stopped)
        assert (await stub.ScoreText(length_request(), timeout=30)).scores


async def test_what_is_computed_does_not_hold_up_the_others(alignment: AlignmentServiceAsyncStub) -> None:
    heavy = ranking_pb2.RankSystemsRequest(resample_count=20_000)
    for index in range(8000):
        heavy.items.add(id=str(index), system=f"s{index % 40}", scores={"a": index % 7, "b": index % 5})
    call = alignment.RankSystems(heavy)
    try:
        for _ in range(5):
            assert (await alignment.ScoreText(length_request(), timeout=30)).scores
        assert not call.done()  # minutes of work
    finally:
        call.cancel()


def length_request() -> text_pb2.ScoreTextRequest:
    request = text_pb2.ScoreTextRequest(metrics=["length"])
    request.pairs.add(candidate="a", reference="b")
    return request


@pytest.fixture
async def one_place() -> AsyncIterator[Workers]:
    workers = Workers(1, 0)
    yield workers
    await workers.close()


async def test_more_than_may_wait_are_refused_until_there_is_room(one_place: Workers) -> None:
    release = threading.Event()
    first = asyncio.ensure_future(one_place.run(lambda _: release.wait(30)))
    await asyncio.sleep(0)
    with pytest.raises(Exception, match="1 requests are computed") as refused:
        await one_place.run(lambda _: True)
    assert refused.value.reason_name == "ERROR_REASON_OVERLOADED"  # type: ignore[attr-defined]  # a ServiceError
    release.set()
    assert await first
    assert await one_place.run(lambda _: True)


async def test_given_up_work_stops_at_its_next_checkpoint(one_place: Workers) -> None:
    work = Endless()
    task = asyncio.ensure_future(one_place.run(work.run))
    assert await happens(work.started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await happens(work.stopped)


async def violations(call: Any) -> list[str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    error = from_rpc_error(refused.value)
    assert (error.code, error.reason_name) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "ERROR_REASON_FIELD_INVALID",
    )
    return [violation.field for violation in error.violations]
