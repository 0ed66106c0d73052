"""AuthoringService.WriteScript over real gRPC."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest
from services.generation.app import PROMPTS
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, OpenAIServer

TASK = Task(goal="Bake a cake without an oven", constraints=["without an oven", "in 30 minutes"])
SCRIPT = "1. Mix the batter.\n2. Add 2.5 cups of milk.\n3. Steam it."


async def test_a_script_is_written_step_by_step() -> None:
    async with OpenAIServer(lambda _: SCRIPT) as server, generation_service(server) as service:
        response = await service.authoring.WriteScript(WriteScriptRequest(task=TASK))
        body = server.bodies[0]
    assert response.text == SCRIPT
    assert [step.text for step in response.script.steps] == [
        "Mix the batter.",
        "Add 2.5 cups of milk.",
        "Steam it.",
    ]
    assert response.failure == ""
    assert "temperature" not in body
    (message,) = body["messages"]
    assert "step by step" in message["content"]
    assert TASK.goal in message["content"]
    assert "- in 30 minutes" in message["content"]
    provenance = response.provenance
    assert provenance.name == "llm-author"
    assert provenance.contract == "dramaturg.api.generation.v1.AuthoringService"
    assert provenance.usage.provider_call_count == len(provenance.completions) == 1
    (prompt,) = provenance.prompts
    assert prompt.name == "write_script"
    assert prompt.sha256 == hashlib.sha256((PROMPTS / "write_script.md").read_bytes()).hexdigest()


async def test_model_sampling_and_repeat_are_the_request_s() -> None:
    options = JudgeOptions(model="p1/writer", sampling=Sampling(temperature=0.7), repeat_index=2)
    async with (
        OpenAIServer() as one,
        OpenAIServer(lambda _: SCRIPT) as two,
        generation_service(one, two) as service,
    ):
        for _ in range(2):
            await service.authoring.WriteScript(WriteScriptRequest(task=TASK, options=options))
        options.repeat_index = 3
        await service.authoring.WriteScript(WriteScriptRequest(task=TASK, options=options))
        assert not one.calls
        assert [(body["model"], body["temperature"]) for body in two.bodies] == [("writer", 0.7)] * 2


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (Answer("", refusal="No."), "refused"),
        (Answer("I'm sorry, but I can't help with that."), "refused"),
        (Answer("1. Mix", finish_reason="length"), "truncated"),
        (Answer(""), "empty"),
    ],
)
async def test_an_answer_of_no_use_says_so(answer: Answer, failure: str) -> None:
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.WriteScript(WriteScriptRequest(task=TASK))
    assert response.failure == failure
    assert not response.HasField("script")
    assert response.provenance.usage.provider_call_count >= 1


async def test_a_deployment_words_its_own_prompts(tmp_path: Path) -> None:
    (tmp_path / "write_script.md").write_text("# user\n\nSchreibe: {{task}}\n")
    async with OpenAIServer(lambda _: SCRIPT) as server:
        async with generation_service(server, prompts_dir=tmp_path) as service:
            await service.authoring.WriteScript(WriteScriptRequest(task=Task(goal="Kuchen backen")))
        assert server.bodies[0]["messages"] == [{"role": "user", "content": "Schreibe: Kuchen backen"}]
