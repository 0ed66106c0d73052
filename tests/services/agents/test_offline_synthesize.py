from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
from scipy.optimize import linear_sum_assignment

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from services.agents.commonsense.judge import OfflineCommonsense
from services.agents.offline.consensus import script_similarities
from services.agents.synthesize.offline import OfflineSynthesizer
from tests.support.embedding import warm_embedding_stub
from tests.support.scripts import TEA, candidate, judge_item, pool, tea_scripts

GUITAR = ["Tune the guitar.", "Learn a few chords.", "Play a song."]


@pytest_asyncio.fixture
async def synthesizer() -> AsyncIterator[OfflineSynthesizer]:
    async with warm_embedding_stub() as stub:
        yield OfflineSynthesizer(stub)


async def test_the_reference_is_the_candidate_most_like_the_others(synthesizer: OfflineSynthesizer) -> None:
    scripts = [GUITAR, tea_scripts(1)[0][:3], *tea_scripts(3)]
    others = pool(*scripts)
    response = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=others))
    assert [step.text for step in response.script.steps] in tea_scripts(3)
    assert list(response.pool_ids) == sorted(other.id for other in others)
    assert response.provenance.parameters["method"] == "medoid of the pool"
    assert not response.failure
    again = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=others[::-1]))
    assert again == response


async def test_the_only_candidate_is_its_own_reference(synthesizer: OfflineSynthesizer) -> None:
    response = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=pool(GUITAR)))
    assert [step.text for step in response.script.steps] == GUITAR


@pytest.mark.parametrize("unusable", [(), ("", "Just prose.", ["烧水", "泡茶"])])
async def test_nothing_usable_is_a_failure_in_words(
    synthesizer: OfflineSynthesizer, unusable: tuple[str, ...]
) -> None:
    response = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=pool(*unusable)))
    assert not response.script.steps
    assert "language model" in response.failure
    assert not response.pool_ids


async def test_an_unreachable_embedding_service_is_an_error() -> None:
    async with open_channel("127.0.0.1:9") as channel:
        synthesizer = OfflineSynthesizer(embedding_service_pb2_grpc.EmbeddingServiceStub(channel))
        with pytest.raises(ServiceError) as raised:
            await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=pool(GUITAR)))
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE
    assert raised.value.metadata["service"] == "embedding"


async def test_common_sense_is_never_judged() -> None:
    checker = OfflineCommonsense()
    for steps in (["Put the kettle into the fridge to boil it."], "Some prose.", ["烧水"]):
        assessment = await checker.judge(judge_item(TEA, candidate(steps), criteria=checker.criteria))
        assert [found.abstain_reason for found in assessment.verdicts] == [
            verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
        ]


async def test_the_work_ends_when_the_call_is_cancelled(
    synthesizer: OfflineSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    compared = []

    def match(cosines: np.ndarray, **options: bool) -> object:
        compared.append(cosines)
        begun.set()
        go_on.wait(30)
        return linear_sum_assignment(cosines, **options)

    def compare(*args: Any) -> object:
        try:
            return script_similarities(*args)
        finally:
            ended.set()

    monkeypatch.setattr("scipy.optimize.linear_sum_assignment", match)
    monkeypatch.setattr("services.agents.synthesize.offline.script_similarities", compare)
    request = SynthesizeRequest(task=TEA, candidates=pool(GUITAR, *tea_scripts(3)))
    call = asyncio.create_task(synthesizer.synthesize(request))
    assert await asyncio.to_thread(begun.wait, 30)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    assert len(compared) == 1
