"""WriteScenarios over real gRPC, with an author and an embedding service made of functions."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1.decision_pb2 import CHOICE_EITHER, CHOICE_OPTION_1, CHOICE_OPTION_2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED, ABSTAIN_REASON_UNPARSABLE
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scenarios_pb2 import WriteScenariosRequest, WriteScenariosResponse
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    SCENARIO_FORM_HARD_VERB_PHRASE,
    SCENARIO_FORM_USER_PROFILE,
    SCENARIO_FORM_VERB_PHRASE,
    ScenarioBrief,
    ScenarioDemonstration,
    WriteScenarioRequest,
    WriteScenarioResponse,
)
from dramaturg.client import DramaturgClient
from dramaturg.embedding import SMALL_BATCH
from dramaturg.service.errors import ServiceError
from tests.support.evaluations import CALL, gateway_target

BRIEF = ScenarioBrief(goal="find the hours", option_1="ring the library", option_2="look online")


async def write(request: WriteScenarioRequest) -> WriteScenarioResponse:
    """Two models: "shy" refuses its second repeat; others write texts of their repeat and option."""
    index = request.options.repeat_index
    if request.options.model == "shy" and index % 2:
        return WriteScenarioResponse(
            failure="the model declined", abstain_reason=ABSTAIN_REASON_REFUSED, provenance=CALL
        )
    leaks = request.target == CHOICE_OPTION_2
    text = f"{request.options.model} {request.target} {index}"
    return WriteScenarioResponse(scenario=text, leaks_option=leaks, provenance=CALL)


async def embed(request: EmbedRequest) -> EmbedResponse:
    """Texts with the same end are similar."""
    answer = EmbedResponse(model="encoder")
    for text in request.texts:
        answer.embeddings.add(values=[1.0, 0.0] if text.endswith("0") else [0.0, 1.0])
    return answer


def asked(**fields: Any) -> WriteScenariosRequest:
    return WriteScenariosRequest(**{"brief": BRIEF, "id": "b", "count": 2, **fields})


async def events(
    request: WriteScenariosRequest, author: Any = write, **roles: Any
) -> list[WriteScenariosResponse]:
    methods = {"author": {"WriteScenario": author}, **roles}
    async with gateway_target(methods) as target, DramaturgClient(target) as client:
        return [event async for event in client.write_scenarios(request, timeout=20)]


async def test_each_model_writes_for_each_option_and_near_duplicates_are_found() -> None:
    request = asked(models=["bold", "shy"], tags={"source": "own"})
    found = await events(request, embedding={"Embed": embed})
    assert found[0].accepted.assessment_count == 8
    assert [one.role for one in found[0].accepted.judges] == ["author", "embedding"]
    assert [event.WhichOneof("event") for event in found[1:]] == ["scenario"] * 8 + ["result"]
    result = found[-1].result
    assert (result.id, result.form, dict(result.tags)) == ("b", SCENARIO_FORM_VERB_PHRASE, {"source": "own"})
    scenarios = {one.id: one for one in result.scenarios}
    assert list(scenarios) == [
        *("option-1/0", "option-1/1", "option-2/0", "option-2/1"),
        *("option-1/2", "option-1/3", "option-2/2", "option-2/3"),
    ]
    assert scenarios["option-1/2"].model == "shy"
    assert scenarios["option-2/0"].leaks_option
    # The embeddings of equal ends are equal.
    assert {name: one.duplicate_of for name, one in scenarios.items() if one.duplicate_of} == {
        "option-2/0": "option-1/0",
        "option-2/1": "option-1/1",
        "option-1/2": "option-1/0",
        "option-2/2": "option-1/0",
    }
    failed = scenarios["option-1/3"]
    assert (failed.failure_reason, failed.abstain_reason) == (ABSTAIN_REASON_REFUSED, 0)
    assert failed.failure == "the model declined"
    assert (result.embedding_service, result.embedding_model) == ("fake", "encoder")
    assert not result.duplicates_unchecked
    assert result.usage.provider_call_count == 8


async def test_a_repeat_asks_for_other_scenarios() -> None:
    seen: list[int] = []

    async def note(request: WriteScenarioRequest) -> WriteScenarioResponse:
        seen.append(request.options.repeat_index)
        return await write(request)

    request = asked(target=CHOICE_OPTION_1)
    await events(request, note)
    request.options.repeat_index = 1
    await events(request, note)
    assert sorted(seen) == [0, 1, 2, 3]


async def test_refusals_can_abstain_and_a_failed_call_leaves_the_others() -> None:
    async def fail(request: WriteScenarioRequest) -> WriteScenarioResponse:
        if not request.options.repeat_index:
            return WriteScenarioResponse()
        return await write(request)

    request = asked(models=["shy"], target=CHOICE_OPTION_1, unusable_outputs_abstain=True)
    result = (await events(request, fail))[-1].result
    empty, refused = result.scenarios
    assert (empty.abstain_reason, empty.failure) == (
        ABSTAIN_REASON_UNPARSABLE,
        "the author answered without a scenario",
    )
    assert (refused.abstain_reason, refused.failure_reason) == (ABSTAIN_REASON_REFUSED, 0)
    assert result.duplicates_unchecked == "no service of the role 'embedding' is registered"


@pytest.mark.parametrize("answer", [EmbedResponse(model="m"), None])
async def test_without_embeddings_equal_words_are_near_duplicates(answer: EmbedResponse | None) -> None:
    async def same(request: WriteScenarioRequest) -> WriteScenarioResponse:
        return WriteScenarioResponse(scenario="Is  late" if request.options.repeat_index else "is late")

    async def no_vectors(request: EmbedRequest) -> EmbedResponse:
        if answer is None:
            raise RuntimeError
        return answer

    request = asked(target=CHOICE_OPTION_1)
    result = (await events(request, same, embedding={"Embed": no_vectors}))[-1].result
    assert result.scenarios[1].duplicate_of == "option-1/0"
    assert result.duplicates_unchecked.startswith("the embedding service 'fake' ")
    assert not result.embedding_service


async def test_a_slow_embedding_service_is_asked_again_with_fewer_texts() -> None:
    called: list[int] = []

    async def slow(request: EmbedRequest) -> EmbedResponse:
        called.append(len(request.texts))
        if len(request.texts) > SMALL_BATCH:
            await asyncio.Event().wait()
        return await embed(request)

    request = asked(target=CHOICE_OPTION_1, count=SMALL_BATCH + 1)
    methods: dict[str, Any] = {"author": {"WriteScenario": write}, "embedding": {"Embed": slow}}
    async with (
        gateway_target(methods, judge_timeout_seconds=1) as target,
        DramaturgClient(target) as client,
    ):
        result = [event async for event in client.write_scenarios(request, timeout=20)][-1].result
    assert called == [SMALL_BATCH + 1, SMALL_BATCH, 1]
    assert (result.duplicates_unchecked, result.embedding_service) == ("", "fake")
    assert [one.id for one in result.scenarios if not one.duplicate_of] == ["option-1/0", "option-1/1"]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (asked(target=CHOICE_EITHER), "target"),
        (asked(musts=["age"]), "musts"),
        (asked(models=["a", "a"]), "models[1]"),
        (asked(judges=[JudgeSelection(role="critic")]), "judges[0].role"),
        (
            asked(demonstrations=[ScenarioDemonstration(brief=BRIEF, scenario="x")]),
            "demonstrations[0].target",
        ),
        (
            asked(
                form=SCENARIO_FORM_HARD_VERB_PHRASE,
                demonstrations=[
                    ScenarioDemonstration(brief=BRIEF, scenario="x", target=CHOICE_OPTION_1),
                ],
            ),
            "demonstrations[0].base_scenario",
        ),
        (WriteScenariosRequest(), "brief"),
    ],
)
async def test_invalid_requests_name_the_field(request_: WriteScenariosRequest, field: str) -> None:
    with pytest.raises(ServiceError) as refused:
        await events(request_)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.violations[0].field.startswith(field)


async def test_a_profile_has_its_attributes() -> None:
    seen: list[WriteScenarioRequest] = []

    async def note(request: WriteScenarioRequest) -> WriteScenarioResponse:
        seen.append(request)
        return await write(request)

    request = asked(form=SCENARIO_FORM_USER_PROFILE, musts=["age"], must_nots=["name"], count=1)
    await events(request, note)
    assert {(one.form, tuple(one.musts), tuple(one.must_nots)) for one in seen} == {
        (SCENARIO_FORM_USER_PROFILE, ("age",), ("name",))
    }
