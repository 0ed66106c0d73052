"""Makes ``completions.jsonl`` out of ``answers.jsonl``: run it after a prompt or an answer has changed.

A recording is addressed by what the judges really send, so every agent is asked about every sample, and
every request is answered with the text written for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1 import generation_service_pb2, generation_service_pb2_grpc
from dramaturg.datasets.json_lines import json_objects
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.criteria import EXECUTABLE, NO_MISSING_STEPS, SATISFIES_CONSTRAINTS
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.roles import COMMONSENSE, CRITIC, EXECUTE, SCRIPT_JUDGE
from dramaturg.judge.steps import parse_candidate, split_steps
from dramaturg.service.channel import open_channel
from dramaturg.service.installed import App
from dramaturg.service.server import Contract, Server
from dramaturg.service.settings import ServerSettings
from services.agents.commonsense.judge import SPEC as COMMONSENSE_SPEC
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.execute.judge import SPEC as EXECUTE_SPEC
from services.agents.synthesize.synthesizer import SPEC as SYNTHESIZE_SPEC
from services.generation.app import PROMPTS, repair_request
from services.generation.calls import Answer, Call, Deadline, DeadlinePolicy, FinishReason
from services.generation.completions import Completer
from services.generation.ledger import Ledger, open_ledger
from services.generation.pricing import PriceTable
from services.generation.providers.base import Provider
from services.generation.providers.replay import ReplayProvider
from services.generation.registry import ConfiguredProvider, Registry
from services.generation.servicer import GenerationServicer, Generator
from services.judging.judge import SPEC as SCRIPT_JUDGE_SPEC

FOLDER = Path(__file__).resolve().parent
RECORDING = FOLDER / "completions.jsonl"


REASONING: Mapping[str, Mapping[str, Any]] = {
    "critic": {"comparison": "I go through both scripts side by side."},
    "execute": {"walk": [], "end": "I follow the steps to the last one.", "left": "none"},
    "commonsense": {"actions": "I look at each step by itself."},
    "script-judge": {"actions": "I go through the script from start to end."},
}
"""What stands before the verdicts in the answers to each judge."""


class Written(Provider):
    """A provider that answers every request with the current text."""

    name = "written"
    address = "written"
    default_model = "written"
    keeps = False

    def __init__(self) -> None:
        self.answer = Answer("")

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """The text at hand."""
        del call, deadline
        return self.answer

    async def models(self) -> Sequence[str]:
        """Its one model."""
        return ["written"]

    async def close(self) -> None:
        """Nothing is held open."""


def completion(
    agent: str,
    answer: Mapping[str, Any],
    candidate: Candidate,
    constraints: Sequence[str],
    walk: Sequence[Mapping[str, Any]] = (),
) -> Answer:
    """What a model would have sent for a written answer, and for its notes on steps."""
    if "raw" in answer:
        refused = bool(answer.get("refused"))
        return Answer(
            answer["raw"],
            FinishReason.REFUSAL if refused else FinishReason.STOP,
            refusal=answer["raw"] if refused else "",
        )
    steps = len(parse_candidate(candidate).steps)
    sections = {
        criterion: section(criterion, judged, steps, constraints) for criterion, judged in answer.items()
    }
    reasoning = {**REASONING[agent], "walk": walk} if walk else REASONING[agent]
    return Answer(json.dumps({**reasoning, **sections}, ensure_ascii=False))


def section(
    criterion: str, judged: Mapping[str, Any], steps: int, constraints: Sequence[str]
) -> dict[str, Any]:
    """One criterion in the form that ``dramaturg.judge.answers`` asks for."""
    findings, verdict, reason = judged["findings"], judged["verdict"], judged["rationale"]
    if criterion == SATISFIES_CONSTRAINTS:
        broken = {finding["constraint"]: finding for finding in findings}
        items = []
        for number, constraint in enumerate(constraints, start=1):
            finding = broken.get(constraint)
            item = {"constraint": number, "reason": finding["description"] if finding else reason}
            if steps:
                item["steps"] = finding["steps"] if finding else []
            items.append(item | {"verdict": "fail" if finding else "pass"})
        return {"constraints": items, "verdict": verdict}
    if criterion == EXECUTABLE and steps:
        faults = {step: finding["description"] for finding in findings for step in finding["steps"]}
        faulty = [
            {"step": step, "reason": fault, "verdict": "fail"} for step, fault in sorted(faults.items())
        ]
        return {"steps": faulty, "verdict": verdict}
    entries = []
    for finding in findings:
        entry = {"missing_step": finding["missing_step"]} if criterion == NO_MISSING_STEPS else {}
        if steps:
            entry["steps"] = finding["steps"]
        entries.append(entry | {"problem": finding["description"]})
    return {"reason": reason, "findings": entries, "verdict": verdict}


def gold(text: str) -> Answer:
    """The gold answer in the form that the synthesizer asks for."""
    considerations = "The task needs every step below; nothing else is needed."
    steps = {"considerations": considerations, "steps": list(split_steps(text))}
    return Answer(json.dumps(steps, ensure_ascii=False))


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[str]:
    """Serves an app on a free port; gives its target."""
    async with app.open() as contracts, Server(contracts, free_port()) as server:
        yield server.target


def free_port() -> ServerSettings:
    """Settings of a server on a free port that stops at once."""
    return ServerSettings(port=0, drain_delay_seconds=0)


def generation(written: Written, ledger: Ledger) -> Contract:
    """A generation service that records its answers."""
    recording = ReplayProvider("samples", RECORDING, source=written)
    registry = Registry([ConfiguredProvider(recording, PriceTable())])
    # A repair is answered like the first request: what cannot be read stays so.
    repair = repair_request(PromptLibrary(PROMPTS))
    completer = Completer(registry, ledger, repair, 8192)
    return Contract.make(
        generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"],
        generation_service_pb2_grpc.add_GenerationServiceServicer_to_server,
        GenerationServicer(Generator(completer, DeadlinePolicy(60, 0)), registry, ledger),
        name="generation",
        version="0.0.0",
        description="Records the samples.",
    )


async def record() -> int:
    """Records every answer; returns how many completions there are."""
    RECORDING.unlink(missing_ok=True)
    tasks = [ParseDict(row, EvaluateScriptsRequest()) for row in objects("tasks.jsonl")]
    rows = objects("answers.jsonl")
    answers = {(row["task_id"], row.get("candidate_id"), row["agent"]): row["answer"] for row in rows}
    walks = {(row["task_id"], row["candidate_id"]): row["walk"] for row in rows if "walk" in row}
    written = Written()
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(open_ledger("sqlite://"))
        server = await stack.enter_async_context(Server([generation(written, ledger)], free_port()))
        judges = (SYNTHESIZE_SPEC, CRITIC_SPEC, EXECUTE_SPEC, COMMONSENSE_SPEC, SCRIPT_JUDGE_SPEC)
        apps = {judge.role.name: judge(generation_target=server.target) for judge in judges}
        channels = {
            name: await stack.enter_async_context(open_channel(await stack.enter_async_context(serving(app))))
            for name, app in apps.items()
        }
        for sample in tasks:
            written.answer = gold(answers[sample.task.id, None, "synthesize"])
            response = await SynthesizeServiceStub(channels["synthesize"]).Synthesize(
                SynthesizeRequest(task=sample.task, candidates=sample.candidates)
            )
            for candidate in sample.candidates:
                for role in (CRITIC, EXECUTE, COMMONSENSE, SCRIPT_JUDGE):
                    answer = answers[sample.task.id, candidate.id, role.name]
                    walk = walks.get((sample.task.id, candidate.id), ()) if role is EXECUTE else ()
                    written.answer = completion(role.name, answer, candidate, sample.task.constraints, walk)
                    reference = response.script if role is CRITIC else None
                    request = judge_request(sample.task, [candidate], reference=reference)
                    await judge_one(channels[role.name], request, timeout=30)
    return len(objects("completions.jsonl"))


def objects(name: str) -> Sequence[dict[str, Any]]:
    """The rows of one of the samples' files."""
    return [row for _, row in json_objects(FOLDER / name)]


if __name__ == "__main__":
    count = asyncio.run(record())
    print(f"{count} completions in {RECORDING.name}")  # noqa: T201
