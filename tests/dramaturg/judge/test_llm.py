"""What becomes of every way in which a model can fail to answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, CompletionStatus, GenerateRequest
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.judge import abstentions
from dramaturg.judge.answers import StepsForm
from dramaturg.judge.llm import Answer, Asker
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeGeneration, completion, serve
from tests.support.judges import all_pass

PROMPT = "# system\nWrite.\n\n# user\nGoal: {{goal}}\n{{answer}}\n"


@pytest.fixture
def prompt(tmp_path: Path) -> Prompt:
    (tmp_path / "write.md").write_text(PROMPT, encoding="utf-8")
    return PromptLibrary(tmp_path).load("write", fixed=["answer"], content=["goal"])


@pytest.fixture
def generation() -> FakeGeneration:
    return FakeGeneration(all_pass)


@pytest.fixture
async def target(generation: FakeGeneration) -> AsyncIterator[str]:
    async with serve(generation.contract()) as server:
        yield server.target


async def ask(
    target: str, prompt: Prompt, options: JudgeOptions | None = None, **defaults: float | str
) -> Answer[tuple[str, ...]]:
    async with open_channel(target) as channel:
        asker = Asker(
            GenerationServiceStub(channel),
            model=str(defaults.get("model", "")),
            max_output_tokens=int(defaults["tokens"]) if "tokens" in defaults else None,
            temperature=float(defaults["temperature"]) if "temperature" in defaults else None,
        )
        return await asker.ask(prompt, {"goal": "Tea"}, StepsForm(), options or JudgeOptions())


async def test_asks_with_the_form_s_schema_and_sends_nothing_that_was_not_asked_for(
    target: str, prompt: Prompt, generation: FakeGeneration
) -> None:
    answer = await ask(target, prompt)
    [request] = generation.requests
    assert request.sampling == Sampling()
    assert json.loads(request.json_format.schema) == StepsForm().shape.schema()
    assert answer.value is not None
    assert answer.abstention is None
    assert answer.provenance.prompts[0].sha256 == hashlib.sha256(PROMPT.encode()).hexdigest()
    assert answer.provenance.completions[0].answered_model == "fake-1"
    assert answer.provenance.usage.prompt_token_count == 10
    assert answer.provenance.parameters == {}


async def test_options_go_before_the_defaults(
    target: str, prompt: Prompt, generation: FakeGeneration
) -> None:
    sampling = Sampling(top_p=0.5, max_output_tokens=7, seed=3, stop=["x", "y"], reasoning_effort="low")
    options = JudgeOptions(model="p/mine", sampling=sampling, repeat_index=2)
    answer = await ask(target, prompt, options, model="p/default", tokens=100)
    [request] = generation.requests
    assert (request.model, request.repeat_index) == ("p/mine", 2)
    assert request.sampling == sampling
    assert answer.provenance.parameters == {
        "top_p": "0.5",
        "max_output_tokens": "7",
        "seed": "3",
        "stop": "x, y",
        "reasoning_effort": "low",
        "repeat_index": "2",
    }


async def test_defaults_stand_where_the_options_are_silent(
    target: str, prompt: Prompt, generation: FakeGeneration
) -> None:
    options = JudgeOptions(sampling=Sampling(seed=3))
    await ask(target, prompt, options, model="p/default", tokens=100, temperature=0.0)
    [request] = generation.requests
    assert request.model == "p/default"
    assert request.sampling == Sampling(temperature=0.0, max_output_tokens=100, seed=3)


STATUSES = {
    "UNPARSABLE": "UNPARSABLE",
    "REFUSED": "REFUSED",
    "TRUNCATED": "TRUNCATED",
    "EMPTY": "EMPTY",
    "FILTERED": "CONTENT_FILTERED",
    "TOOL_CALL": "TOOL_CALL",
    "INTERRUPTED": "INTERRUPTED",
    "UNSPECIFIED": "UNPARSABLE",
}


def test_every_status_is_tried() -> None:
    names = {name.removeprefix("COMPLETION_STATUS_") for name in CompletionStatus.keys()}  # noqa: SIM118
    assert names == {*STATUSES, "OK"}


@pytest.mark.parametrize(("status", "reason"), STATUSES.items())
async def test_an_answer_of_no_use_is_an_abstention_with_its_reason(
    status: str, reason: str, target: str, prompt: Prompt, generation: FakeGeneration
) -> None:
    def reply(request: GenerateRequest) -> Completion:
        value = CompletionStatus.Value(f"COMPLETION_STATUS_{status}")
        return completion({}, status=value, json=None, parse_error="at character 7")

    generation.reply = reply
    answer = await ask(target, prompt)
    assert answer.value is None
    assert answer.abstention is not None
    assert AbstainReason.Name(answer.abstention.reason) == f"ABSTAIN_REASON_{reason}"
    assert "at character 7" in answer.abstention.explanation
    assert answer.provenance.completions, "what was bought is accounted for"
    assert len(generation.requests) == 1, "generation alone asks again"


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"steps": []}', "[" * 100_000])
async def test_an_answer_that_claims_to_be_ok_but_is_not_is_unparsable(
    text: str, target: str, prompt: Prompt, generation: FakeGeneration
) -> None:
    generation.reply = lambda _: completion({}, json=text)
    answer = await ask(target, prompt)
    assert answer.abstention is not None
    assert answer.abstention.reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE


FAILURES: Mapping[str, tuple[grpc.StatusCode, str]] = {
    "PROVIDER_UNAVAILABLE": (grpc.StatusCode.UNAVAILABLE, "PROVIDER_UNAVAILABLE"),
    "PROVIDER_RATE_LIMITED": (grpc.StatusCode.RESOURCE_EXHAUSTED, "JUDGE_UNAVAILABLE"),
    "PROVIDER_REJECTED": (grpc.StatusCode.FAILED_PRECONDITION, "CALL_REJECTED"),
    "OVERLOADED": (grpc.StatusCode.RESOURCE_EXHAUSTED, "JUDGE_UNAVAILABLE"),
    "INTERNAL": (grpc.StatusCode.INTERNAL, "JUDGE_UNAVAILABLE"),
    "DEADLINE_EXCEEDED": (grpc.StatusCode.DEADLINE_EXCEEDED, "TIMED_OUT"),
    "DEADLINE_TOO_SHORT": (grpc.StatusCode.DEADLINE_EXCEEDED, "TIMED_OUT"),
    "BUDGET_EXHAUSTED": (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVER_BUDGET"),
}


async def failure(
    target: str, prompt: Prompt, generation: FakeGeneration, reason: str, code: grpc.StatusCode
) -> ServiceError:
    def reply(request: GenerateRequest) -> Completion:
        raise ServiceError(code, ErrorReason.Value(f"ERROR_REASON_{reason}"), "The reason.")

    generation.reply = reply
    with pytest.raises(ServiceError) as caught:
        await ask(target, prompt)
    return caught.value


@pytest.mark.parametrize(("reason", "expected"), FAILURES.items())
async def test_a_failure_of_the_moment_is_an_abstention(
    reason: str,
    expected: tuple[grpc.StatusCode, str],
    target: str,
    prompt: Prompt,
    generation: FakeGeneration,
) -> None:
    code, abstain_reason = expected
    error = await failure(target, prompt, generation, reason, code)
    abstention = abstentions.of_failure(error)
    assert abstention is not None
    assert AbstainReason.Name(abstention.reason) == f"ABSTAIN_REASON_{abstain_reason}"
    assert error.message in abstention.explanation


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("MODEL_UNKNOWN", grpc.StatusCode.INVALID_ARGUMENT),
        ("MODEL_UNKNOWN", grpc.StatusCode.FAILED_PRECONDITION),
        ("PROVIDER_UNAUTHENTICATED", grpc.StatusCode.FAILED_PRECONDITION),
        ("COMPLETION_NOT_RECORDED", grpc.StatusCode.NOT_FOUND),
        ("FIELD_INVALID", grpc.StatusCode.INVALID_ARGUMENT),
        ("NOT_IMPLEMENTED", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
async def test_a_failure_of_the_configuration_is_an_error(
    reason: str, code: grpc.StatusCode, target: str, prompt: Prompt, generation: FakeGeneration
) -> None:
    error = await failure(target, prompt, generation, reason, code)
    assert abstentions.of_failure(error) is None


async def test_a_generation_service_that_is_not_there_is_an_abstention(prompt: Prompt) -> None:
    with pytest.raises(ServiceError) as caught:
        await ask("127.0.0.1:1", prompt)
    abstention = abstentions.of_failure(caught.value)
    assert abstention is not None
    assert abstention.reason == verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    assert caught.value.reason == error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED


def test_ok_is_no_abstention() -> None:
    assert abstentions.of_completion(Completion(status=generation_service_pb2.COMPLETION_STATUS_OK)) is None
