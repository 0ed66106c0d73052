"""Tokens of the prompts: the fixed part that every call of a judge shares, and the calls for a script.

A token is counted as four characters, rounded up for each text. The requests are those of the services.

    python -m bench.prompt_tokens [--write]

Prints the table of docs/reference/prompts.md; --write puts it there. A test holds the two together.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.json_format import ParseDict

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Script, Step, Task
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.datasets.json_lines import json_objects
from dramaturg.judge import roles
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.spec import CriteriaSettings, JudgeSpec
from dramaturg.meta_evaluation.answers import Connections, ask_all
from dramaturg.meta_evaluation.cases import BenchSet
from dramaturg.service.channel import open_channel
from dramaturg.service.installed import App
from dramaturg.testing import FakeGeneration, serve
from services.agents.commonsense.judge import SPEC as COMMONSENSE_SPEC
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.execute.judge import SPEC as EXECUTE_SPEC
from services.agents.synthesize.synthesizer import SPEC as SYNTHESIZE_SPEC
from services.generation.app import PROMPTS as AUTHORING_PROMPTS
from services.judging.challenges.judge import SPEC as CHALLENGE_JUDGE_SPEC
from services.judging.judge import SPEC as SCRIPT_JUDGE_SPEC
from services.judging.pairs.judge import SPEC as PAIR_JUDGE_SPEC
from services.judging.ratings.judge import SPEC as RATING_JUDGE_SPEC
from services.judging.rubrics.judge import SPEC as RUBRIC_JUDGE_SPEC
from services.roles.app import App as RolesApp
from services.roles.settings import RoleSettings
from tests.support.judges import all_pass
from tests.support.prompts import expanded

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reference" / "prompts.md"
EXAMPLES = ROOT / "examples" / "scripts" / "tasks.jsonl"
BEGIN, END = "<!-- tokens: python -m bench.prompt_tokens --write -->\n", "<!-- end of tokens -->\n"
CHARACTERS_PER_TOKEN = 4


class Sent(NamedTuple):
    """One request as sent to the model."""

    system: str
    user: str


class Measured(NamedTuple):
    """The requests of all judges and agents."""

    first: Mapping[str, Sent]
    """One request of each prompt of a judge."""
    calls: Mapping[str, Sequence[Sent]]
    """The agents' requests for the example scripts."""


def tokens(text: str) -> int:
    """The number of tokens of a text, by the stated rule."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def apps(target: str, *, severity: bool) -> Mapping[str, App]:
    """The services that send prompts, by role."""
    judges: tuple[JudgeSpec[Any], ...] = (
        SYNTHESIZE_SPEC,
        CRITIC_SPEC,
        EXECUTE_SPEC,
        COMMONSENSE_SPEC,
        SCRIPT_JUDGE_SPEC,
        PAIR_JUDGE_SPEC,
        RATING_JUDGE_SPEC,
        RUBRIC_JUDGE_SPEC,
        CHALLENGE_JUDGE_SPEC,
    )
    apps: dict[str, App] = {
        judge.role.name: judge(
            generation_target=target,
            **({"severity": severity} if issubclass(judge.settings, CriteriaSettings) else {}),
        )
        for judge in judges
    }
    return apps | {roles.ROLES_FINDER.name: RolesApp(RoleSettings(generation_target=target))}


async def measure(*, severity: bool = False) -> Measured:
    """Sends the requests.

    Args:
        severity: Whether judges of scripts ask how grave each fault is (setting ``severity``).
    """
    fake = FakeGeneration(all_pass)
    first: dict[str, Sent] = {}
    async with AsyncExitStack() as stack:
        generation = await stack.enter_async_context(serve(fake.contract()))
        channels = {}
        for name, app in apps(generation.target, severity=severity).items():
            contracts = await stack.enter_async_context(app.open())
            server = await stack.enter_async_context(serve(*contracts))
            channels[name] = await stack.enter_async_context(open_channel(server.target))
        for case in BenchSet().cases(tuple(channels)):
            fake.requests.clear()
            [answer] = await ask_all(
                [case], Connections(None, channels), JudgeOptions(), concurrency=1, timeout=60
            )
            assert not answer.error, answer.error
            first.setdefault(answer.provenance.prompts[0].name, _taken(fake)[0])
        first["judge_script_with_reference"] = await _with_reference(fake, channels[roles.SCRIPT_JUDGE.name])
        await SynthesizeServiceStub(channels["synthesize"]).Synthesize(SynthesizeRequest(task=Task(goal="G")))
        first["synthesize_alone"] = _taken(fake)[0]
        calls = {}
        rows = [ParseDict(row, EvaluateScriptsRequest()) for _, row in json_objects(EXAMPLES)]
        for row in rows:
            stub = SynthesizeServiceStub(channels["synthesize"])
            await stub.Synthesize(SynthesizeRequest(task=row.task, candidates=row.candidates))
        calls["synthesize"] = _taken(fake)
        for role in (roles.CRITIC, roles.EXECUTE, roles.COMMONSENSE):
            for row in rows:
                steps = row.candidates[0].text or "\n".join(s.text for s in row.candidates[0].script.steps)
                reference = Script(steps=[Step(text=line) for line in steps.split("\n") if line.strip()])
                for candidate in row.candidates:
                    request = judge_request(
                        row.task, [candidate], reference=reference if role.compares else None
                    )
                    await judge_one(channels[role.name], request, timeout=60)
            calls[role.name] = _taken(fake)
    return Measured(first, calls)


async def _with_reference(fake: FakeGeneration, channel: grpc.aio.Channel) -> Sent:
    """The request of the script-judge for a flawless script with its reference."""
    case = next(case for case in BenchSet().cases([roles.CRITIC.name]) if case.id.endswith("+reference"))
    assert isinstance(case.request, JudgeRequest)
    await judge_one(channel, case.request, timeout=60)
    return _taken(fake)[0]


def _taken(fake: FakeGeneration) -> Sequence[Sent]:
    sent = [Sent(request.messages[0].text, request.messages[-1].text) for request in fake.requests]
    fake.requests.clear()
    return sent


def table(measured: Measured, graded: Measured) -> str:
    """The tables of docs/reference/prompts.md.

    Args:
        measured: The requests.
        graded: The requests with the setting ``severity``.
    """
    first, calls = measured
    lines = [
        "| prompt | fixed part | with a request of the set | the same with `severity` |",
        "|---|---|---|---|",
    ]
    for name, sent in sorted(first.items()):
        more = _tokens_of(graded.first[name])
        grows = f" {more} " if more != _tokens_of(sent) else " "
        lines.append(f"| `{name}` | {tokens(sent.system)} | {_tokens_of(sent)} |{grows}|")
    lines += ["", "| prompt of generation | fixed part without the form |", "|---|---|"]
    for file in sorted(AUTHORING_PROMPTS.glob("*.md")):
        text = expanded(file)
        found = re.search(r"^# system\n\n(.*?)\n\n# user$", text, re.DOTALL | re.MULTILINE)
        # A prompt without a system message has its fixed part around the content.
        fixed = found[1] if found else text.partition("# user\n\n")[2].partition("\n# part ")[0]
        if fixed:
            lines.append(f"| `{file.stem}` | {tokens(re.sub(r'{{.*?}}', '', fixed).strip())} |")
    scripts = len(calls["critic"])
    lines += [
        "",
        "| example scripts | calls | tokens a call | shared with an earlier call |",
        "|---|---|---|---|",
    ]
    all_tokens, all_shared = 0, 0.0
    for name, made in calls.items():
        total = sum(map(_tokens_of, made))
        shared = sum(_shared(made)) / CHARACTERS_PER_TOKEN
        all_tokens, all_shared = all_tokens + total, all_shared + shared
        lines.append(f"| {name} | {len(made)} | {total / len(made):.0f} | {shared / len(made):.0f} |")
    lines.append(
        f"| all, for each of {scripts} scripts | | {all_tokens / scripts:.0f} | {all_shared / scripts:.0f} |"
    )
    graded_tokens = sum(_tokens_of(one) for made in graded.calls.values() for one in made)
    lines.append(f"| the same with `severity` | | {graded_tokens / scripts:.0f} | |")
    return "\n".join(lines) + "\n"


def _tokens_of(sent: Sent) -> int:
    return tokens(sent.system) + tokens(sent.user)


def _shared(sent: Sequence[Sent]) -> Sequence[int]:
    """The characters at the beginning of each request that an earlier one has too."""
    texts = [f"{one.system}\0{one.user}" for one in sent]
    return [
        max((_common(text, other) for other in texts[:index]), default=0) for index, text in enumerate(texts)
    ]


def _common(first: str, second: str) -> int:
    """The number of characters at the beginning of two texts that are the same."""
    pairs = zip(first, second, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second))
    )


def main() -> None:
    """Prints or writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    found = table(asyncio.run(measure()), asyncio.run(measure(severity=True)))
    if parser.parse_args().write:
        text = DOCUMENT.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{found}\n{END}{after}", encoding="utf-8")
    else:
        print(found)


if __name__ == "__main__":
    main()
