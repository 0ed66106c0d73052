"""What one tenant sends is read by no other, regardless of what fails."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from prometheus_client import generate_latest

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.evaluation.v1 import run_service_pb2 as runs_pb
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CheckJudgeRequest,
    JudgeRegistration,
    RegisterJudgeRequest,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.label_service_pb2 import CreateLabelSetRequest
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PAUSED, Dataset, RunSpec
from dramaturg.api.evaluation.v1.scripts_pb2 import MECHANISM_SINGLE_JUDGE, EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest, RubricCriterion
from dramaturg.api.generation.v1.authoring_service_pb2 import WriteScriptRequest
from dramaturg.service.auth.caller import TENANT_METADATA
from dramaturg.service.context import REQUEST_ID_METADATA
from dramaturg.testing import until
from gateway.runs.records import ACTIVE
from tests.hostile.gateway import PublicGateway, ask, public_methods
from tests.hostile.requests import filled, texts
from tests.hostile.taint import (
    ANSWERING,
    HANGING,
    HEALTHY,
    MISBEHAVIOURS,
    OTHER,
    QUOTES,
    SHARED_JUDGE,
    Marks,
    Read,
    TwoTenants,
    logged,
    model_of,
    two_tenants,
)
from tests.support.auth import every_method
from tests.support.engines import lines
from tests.support.fleet import report
from tests.support.openai_server import Body
from tests.support.telemetry import counted

METHODS = {f"{one.containing_service.name}.{one.name}": one for one in every_method()}
AT_ONCE = 8
ROUNDS = 4
SECONDS = 20.0
ENDLESS = (HANGING, "rate-limited")
"""The providers that are asked until the deadline."""
NO_MARK = "before noon"
"""In place of a mark, in the requests of the other tenant."""


def request_id(name: str) -> Sequence[tuple[str, str]]:
    """The metadata of a call with a request id."""
    return ((REQUEST_ID_METADATA, re.sub(r"[^\w-]", "-", name)),)


def scripts(mark: str, model: str) -> EvaluateScriptsRequest:
    """A script before the single judge, with a mark in its texts."""
    step = Step(text=f"Heat water. {mark}")
    return EvaluateScriptsRequest(
        task=Task(id="t", goal=f"Make tea {mark}", constraints=[f"without a kettle {mark}"]),
        candidates=[Candidate(id="a", model=f"writer {mark}", script=Script(steps=[step]))],
        options=JudgeOptions(model=model),
        mechanism=MECHANISM_SINGLE_JUDGE,
        tags={"level": f"hard {mark}"},
    )


def rubric(mark: str, model: str, judge: str = "", task: str = "t") -> EvaluateTextsRequest:
    """A text before a judge of rubrics, with a mark in its texts."""
    return EvaluateTextsRequest(
        task=Task(id=task, goal=f"Answer {mark}"),
        texts=[EvaluatedText(id="a", model=f"writer {mark}", text=f"It is on its way. {mark}")],
        criteria=[RubricCriterion(id="polite", description=f"Polite {mark}", passes="It greets.")],
        reference=f"Good morning {mark}",
        options=JudgeOptions(model=model),
        judges=[JudgeSelection(role="rubric-judge", judge=judge)] if judge else [],
    )


def writing(mark: str, model: str) -> WriteScriptRequest:
    """A script to be written, for a goal with a mark."""
    return WriteScriptRequest(task=Task(goal=f"Make tea {mark}"), options=JudgeOptions(model=model))


KINDS: Mapping[str, Callable[[str, str], Any]] = {
    "EvaluationService.EvaluateScripts": scripts,
    "EvaluationService.EvaluateTexts": rubric,
    "AuthoringService.WriteScript": writing,
}


async def all_of(calls: Iterable[Awaitable[object]]) -> None:
    """Awaits calls, some at once."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


class Attack:
    """The marked tenant provokes every failure, and the other tenant calls and reads meanwhile."""

    def __init__(self, platform: TwoTenants) -> None:
        self.platform = platform
        self.marks = Marks()
        self.own = Read()
        """What the marked tenant read."""
        self.read = Read()
        """What the other tenant read."""
        self.refused: list[str] = []
        """The evaluations of the other tenant that failed, with their errors."""
        self.run_ids: list[str] = []
        self.label_set_id = ""

    async def mark(self, name: str, request: Any, *, seconds: float = SECONDS, **options: Any) -> Any:
        """A call of the marked tenant; returns its last response."""
        return await self._ask(self.platform.marked, self.own, name, request, seconds, **options)

    async def call(self, name: str, request: Any, place: str = "", **options: Any) -> Any:
        """A call of the other tenant; returns its last response."""
        options.setdefault("metadata", request_id(f"other-{name}"))
        return await self._ask(self.platform.other, self.read, name, request, SECONDS, place, **options)

    async def _ask(
        self,
        channel: Any,
        read: Read,
        name: str,
        request: Any,
        seconds: float,
        place: str = "",
        **options: Any,
    ) -> Any:
        responses: list[Any] = []
        where = f"{name} {place}".strip()
        error = await ask(channel, METHODS[name], request, seconds, note=responses.append, **options)
        for response in responses:
            read.note(where, response)
        if error is not None:
            read.note(where, error)
        if error is not None and place.startswith("beside"):
            self.refused.append(f"{where}: {error.code().name}: {error.details()}")
        return responses[-1] if responses and error is None else None

    async def fields(self) -> None:
        """Sends every field of every public method with a mark, allowed and too long."""
        valid = PublicGateway(
            self.platform.marked, self.platform.other, self.run_ids, self.label_set_id, "", ""
        )
        await all_of(
            self.mark(name, request, seconds=5.0, metadata=request_id(self.marks.new(f"{name}, request id")))
            for method in public_methods()
            for name in [f"{method.containing_service.name}.{method.name}"]
            for _, request in texts(valid.request(method), self.marks.of(name))
        )

    async def metadata(self) -> None:
        """Sends marks in metadata."""
        for name in (
            REQUEST_ID_METADATA,
            TENANT_METADATA,
            "authorization",
            "dramaturg-role",
            "x-other",
            "traceparent",
        ):
            for kind, make in KINDS.items():
                metadata = ((name, self.marks.new(f"{kind}, metadata {name}")),)
                await self.mark(kind, make(NO_MARK, ""), metadata=metadata)

    async def provider(self, name: str) -> None:
        """Has a provider fail for the marked tenant, then calls it as the other, by the same request id."""
        model = model_of(name)
        seconds = 1.5 if name in ENDLESS else SECONDS
        for kind, make in KINDS.items():
            shared = request_id(f"shared-{name}-{kind}")
            if name == ANSWERING:
                # Calls to a provider that works are not stopped: the attempts of the request are used up.
                await self.mark(kind, make("after noon", model))
            named = model.replace("@", f"-{self.marks.new(f'model of {name}')}@")
            calls = [
                self.mark(
                    kind, make(self.marks.new(f"{kind} to {name}"), used), seconds=seconds, metadata=shared
                )
                for used in [model] * ROUNDS + [named]
            ]
            waiting = asyncio.gather(*calls)
            while not (await asyncio.wait([waiting], timeout=0.2))[0]:
                await self.waits(f"during {name}")
            await self.call(kind, make(NO_MARK, model), f"beside {name}", metadata=shared)
        await self.call("IdentityService.CheckModel", _check(model), f"after {name}")
        await self.waits(f"after {name}")

    async def judges(self) -> None:
        """Has the shared judge fail for the marked tenant, then calls it as the other."""
        kind = "EvaluationService.EvaluateTexts"
        for name in [*MISBEHAVIOURS, "exception"]:
            for _ in range(ROUNDS):
                await self.mark(kind, rubric(self.marks.new(f"judge: {name}"), "", SHARED_JUDGE, name))
            await self.call(kind, rubric(NO_MARK, "", SHARED_JUDGE), f"judge: {name}")
            await self.call(
                "JudgeDirectoryService.ListJudges",
                filled(METHODS["JudgeDirectoryService.ListJudges"].input_type),
                f"judge: {name}",
            )
            check = CheckJudgeRequest(role="rubric-judge", judge=SHARED_JUDGE)
            await self.call("JudgeDirectoryService.CheckJudge", check, f"judge: {name}")

    async def registrations(self) -> None:
        """Registers judges with marks, one that serves and one that does not."""
        for target in (self.platform.judge_target, "127.0.0.1:1"):
            judge = JudgeRegistration(
                role="rubric-judge", name=self.marks.new("registered judge"), target=target,
                owner=self.marks.new("owner of a judge"), labels={"team": self.marks.new("label of a judge")},
            )  # fmt: skip
            await self.mark("JudgeDirectoryService.RegisterJudge", RegisterJudgeRequest(judge=judge))
            await self.mark(
                "EvaluationService.EvaluateTexts",
                rubric(self.marks.new("text for a registered judge"), "", judge.name, "exception"),
            )

    async def runs(self) -> None:
        """Creates runs with marks: with every outcome, and a set of labels."""
        for name in (HEALTHY, "broken", "rejected", HANGING):
            mark = self.marks.new(f"run to {name}")
            spec = RunSpec(
                display_name=f"Run {mark}",
                dataset=Dataset(
                    content=lines([scripts(mark, model_of(name)), scripts(mark, model_of(name))])
                ),
                labels={"purpose": mark},
            )
            spec.scripts.mechanism = MECHANISM_SINGLE_JUDGE
            created = await self.mark(
                "RunService.CreateRun",
                runs_pb.CreateRunRequest(spec=spec),
                metadata=request_id(f"run-{name}"),
            )
            self.run_ids.append(created.run.id)
            if name == HANGING:
                await self.mark("RunService.CancelRun", runs_pb.CancelRunRequest(run_id=created.run.id))
        for run_id in self.run_ids:
            await ended(self, run_id)
        creating = CreateLabelSetRequest(run_id=self.run_ids[0], display_name=self.marks.new("label set"))
        made = await self.mark("LabelService.CreateLabelSet", creating)
        self.label_set_id = made.label_set.id

    async def abandoned(self) -> None:
        """Ends calls before they are answered, by deadline and by the caller."""
        for kind, make in KINDS.items():
            await self.mark(kind, make(self.marks.new(f"{kind}, deadline"), model_of(HANGING)), seconds=0.2)
            call = asyncio.create_task(
                self.mark(kind, make(self.marks.new(f"{kind}, cancelled"), model_of(HANGING)))
            )
            await until(lambda: self.platform.model.in_flight > 0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    async def waits(self, place: str) -> None:
        for name in ("IdentityService.ListModelWaits", "JudgeDirectoryService.ListModelWaits"):
            request = filled(METHODS[name].input_type, _GIVEN.get(name))
            await self.call(name, request, place)

    async def everything(self) -> None:
        """Reads all that the other tenant can: every method, with its own ids and with foreign ones."""
        own: list[str] = []
        for name in (HEALTHY, "broken"):
            spec = RunSpec(dataset=Dataset(content=lines([scripts(NO_MARK, model_of(name))])))
            spec.scripts.mechanism = MECHANISM_SINGLE_JUDGE
            creating = runs_pb.CreateRunRequest(spec=spec)
            created = await self.call("RunService.CreateRun", creating, metadata=request_id(f"run-{name}"))
            own.append(created.run.id)
            await ended(self, created.run.id, as_other=True)
        made = await self.call("LabelService.CreateLabelSet", CreateLabelSetRequest(run_id=own[0]))
        tenants = {
            "of its own": (own, made.label_set.id),
            "of the marked tenant": (self.run_ids[:2], self.label_set_id),
        }
        for place, (run_ids, label_set_id) in tenants.items():
            valid = PublicGateway(self.platform.other, self.platform.marked, run_ids, label_set_id, "", "")
            await all_of(
                self.call(f"{method.containing_service.name}.{method.name}", valid.request(method), place)
                for method in public_methods()
            )
        for method in public_methods():
            if {"run_id", "label_set_id"} & set(method.input_type.fields_by_name):
                given = {"run_id": self.run_ids[0], "label_set_id": self.label_set_id}
                name = f"{method.containing_service.name}.{method.name}"
                await self.call(name, filled(method.input_type, given), "of the marked tenant, changing")

    async def service_behind(self) -> None:
        """Asks the generation service itself, as a judge of the other tenant may."""
        (target,) = {one.target for one in self.platform.services if one.name == "generation"}
        async with grpc.aio.insecure_channel(target) as channel:
            for name, method in METHODS.items():
                if method.containing_service.name == "GenerationService":
                    metadata = [(TENANT_METADATA, OTHER.tenant)]
                    given = {"provider": "broken"}
                    await self._ask(
                        channel, self.read, name, filled(method.input_type, given), SECONDS, metadata=metadata
                    )

    async def console(self) -> None:
        """Opens every page of the console that a page names."""
        url = self.platform.url
        async with aiohttp.ClientSession(url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            data = {"token": OTHER.token}
            async with session.post(
                "/console/sign-in", data=data, headers={"Origin": url.rstrip("/")}
            ) as entered:
                assert entered.status == 200, await entered.text()
            pages = ["/console/", *(f"/console/runs/{run_id}" for run_id in self.run_ids)]
            seen = set(pages)
            for page in pages:
                async with session.get(page) as response:
                    html = await response.text()
                self.read.note(f"console {page}", html)
                links = {link.partition("#")[0] for link in re.findall(r'href="(/console/[^"]*)"', html)}
                pages += sorted(links - seen)
                seen |= links
            for path in ("/console/runs", "/dramaturg.api.evaluation.v1.RunService/GetRun"):
                async with session.post(path, json={"runId": self.run_ids[0]}) as response:
                    self.read.note(f"HTTP {path}", await response.text())
        assert len(seen) > 5


_GIVEN = {"IdentityService.ListModelWaits": {"contract": "dramaturg.api.evaluation.v1.EvaluationService"}}


def _check(model: str) -> Any:
    method = METHODS["IdentityService.CheckModel"]
    return filled(
        method.input_type, {"contract": "dramaturg.api.generation.v1.AuthoringService", "model": model}
    )


async def ended(attack: Attack, run_id: str, *, as_other: bool = False) -> None:
    """Waits for a run to end or to be paused."""
    get = attack.call if as_other else attack.mark
    async with asyncio.timeout(SECONDS):
        while True:
            found = await get("RunService.GetRun", runs_pb.GetRunRequest(run_id=run_id))
            if found.run.state not in ACTIVE or found.run.state == RUN_STATE_PAUSED:
                return
            await asyncio.sleep(0.05)


def asked_otherwise(bodies: Sequence[Body]) -> set[str]:
    """The providers that were asked a question of the other tenant in another way than most."""
    ways: dict[str, dict[str, set[str]]] = {}
    for body in bodies:
        question = str(body["messages"][-1]["content"])
        if NO_MARK in question:
            way = json.dumps({name: value for name, value in body.items() if name != "model"}, sort_keys=True)
            ways.setdefault(question, {}).setdefault(way, set()).add(str(body["model"]).partition("@")[2])
    rare = [sorted(providers.values(), key=len)[:-1] for providers in ways.values()]
    return {name for found in rare for names in found for name in names}


FOR_OPERATORS = {
    "metrics": r"registered judge|model of .*",
    "GenerationService.GetRateLimits": r".*[._]models?(, too long)?|model of .*",
    "GenerationService.ListModels": r".*[._]models?(, too long)?|model of .*",
}
"""The names of judges and models that operators read (docs/operate/security.md), by place."""


@pytest.mark.timeout(240)
async def test_no_tenant_reads_what_another_one_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted() as counts, logged() as log:
        async with two_tenants(tmp_path, monkeypatch) as platform:
            attack = Attack(platform)
            for name in (HANGING, *QUOTES):
                await attack.provider(name)
            otherwise = asked_otherwise(platform.model.bodies)
            await attack.abandoned()
            await attack.judges()
            await attack.registrations()
            await attack.runs()
            await attack.fields()
            await attack.metadata()
            await attack.everything()
            await attack.service_behind()
            await attack.console()
            attack.read.note("metrics", generate_latest(counts.registry))
    own_lines = [line for line in log if str(line.get("request_id", "")).startswith("other-")]
    for line in own_lines:
        attack.read.note("log", json.dumps(line))
    own = {mark for _, mark in attack.own.marks()}
    report(marks=len(attack.marks), read_by_their_tenant=len(own), read_by_the_other=len(attack.read.texts))
    found = {(place, attack.marks.place(mark)) for place, mark in attack.read.marks()}
    faults = [
        *(
            f"read {place}: {source}"
            for place, source in found
            if not re.fullmatch(FOR_OPERATORS.get(place, ""), source)
        ),
        *(f"refused {error}" for error in attack.refused),
        *(f"asked otherwise: {provider}" for provider in otherwise),
    ]
    assert not faults, "\n".join(sorted(faults))
    # The marked tenant reads its own marks, and the other reads many places: the search can find something.
    assert len(own) > 1000
    assert len(own_lines) > 100
