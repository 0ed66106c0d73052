"""The whole house without a model: real processes, real services, real judges."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.judge.criteria import ABSEVAL
from tests.support.command_line import ROOT, dramaturg, finish, read_jsonl, start
from tests.support.gateway import evaluate_result, scripts_request, steps

TASKS = ROOT / "examples" / "scripts" / "tasks.jsonl"
ROLES = ("synthesize", "critic", "execute", "commonsense")
OFFLINE_REASONS = {"NOT_SUPPORTED", "LOW_CONFIDENCE", "NOT_APPLICABLE"}


def assert_accounted(summary: dict[str, Any], candidates: int) -> None:
    assert summary["failed_samples"] == 0
    assert summary["candidates"] == candidates
    assert sum(summary["verdicts"].values()) == len(ABSEVAL) * candidates
    assert sum(summary["abstentions"].values()) == summary["verdicts"]["ABSTAIN"]
    assert list(summary["by_criterion"]) == list(ABSEVAL)
    for counts in summary["by_criterion"].values():
        assert sum(counts.values()) == candidates


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@asynccontextmanager
async def gateway_process(services: Mapping[str, list[str]], judges: str, folder: Path) -> AsyncIterator[str]:
    """Starts every service as a process of its own, the gateway last, and yields the gateway's address."""
    async with AsyncExitStack() as stack:
        ports = {name: free_port() for name in (*services, "gateway")}
        config = folder / "dramaturg.toml"
        tables = [
            f'[{role}]\nembedding_target = "127.0.0.1:{ports["embedding"]}"'
            for role in ROLES
            if role in ports
        ]
        config.write_text("\n".join(tables) + "\n" + judges.format(**ports))
        environment = {"DRAMATURG_CONFIG": str(config)}
        for name, options in {**services, "gateway": []}.items():
            command = ["serve", name, "--port", str(ports[name]), *options]
            process = await stack.enter_async_context(start(*command, environment=environment))
            # Nobody reads it; a full pipe would hold the process up.
            stack.callback(asyncio.ensure_future(_discard(process.stderr)).cancel)
        yield f"127.0.0.1:{ports['gateway']}"


async def _discard(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(65536):
        pass


async def all_serving(client: DramaturgClient, count: int) -> None:
    """Waits until so many judges are serving."""
    async with asyncio.timeout(60):
        while True:
            try:
                judges = await client.list_judges(timeout=5)
            except ServiceError:
                judges = []
            if sum(judge.health == 1 for judge in judges) == count:
                return
            await asyncio.sleep(0.1)


async def test_the_samples_are_judged_in_one_process_without_a_model(tmp_path: Path) -> None:
    done = await dramaturg("evaluate", "scripts", TASKS, "--limit", "2", "--json", "--out", tmp_path)
    assert done.code == 0, done.err
    assert "offline judges serve" in done.err
    assert_accounted(done.json, 8)
    assert set(done.json["abstentions"]) <= OFFLINE_REASONS
    assert done.json["by_criterion"]["no_duplicate_steps"]["FAIL"] > 0
    assert done.json["usage"]["provider_call_count"] == 0
    names = {
        assessment["assessment"]["provenance"]["name"]
        for result in read_jsonl(tmp_path / "results.jsonl")
        for candidate in result["candidates"]
        for assessment in candidate["assessments"]
    }
    assert names == {"offline-critic", "offline-execute", "offline-commonsense"}


async def test_judges_that_ask_a_model_abstain_where_there_is_none(tmp_path: Path) -> None:
    selected = [option for role in ROLES for option in ("--judge", f"{role}=llm")]
    done = await dramaturg(
        "evaluate", "scripts", TASKS, "--limit", "1", "--json", "--out", tmp_path, *selected
    )
    assert done.code == 0, done.err
    assert done.json["abstentions"] == {"JUDGE_UNAVAILABLE": 28}
    (result,) = read_jsonl(tmp_path / "results.jsonl")
    assert "no model provider is configured" in result["goldAnswer"]["failure"]
    assert "no model provider is configured" in result["candidates"][0]["verdicts"][0]["rationale"]


@pytest.mark.slow
async def test_every_service_as_a_process_of_its_own_and_a_third_partys_judge_by_name(tmp_path: Path) -> None:
    port = free_port()
    terse = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples" / "judges" / "terse_critic.py"), "--port", str(port), cwd=ROOT
    )
    entry = '[[gateway.judges]]\nrole = "{role}"\nname = "{name}"\ntarget = "127.0.0.1:{port}"\n'
    judges = "".join(entry.format(role=role, name="ours", port=f"{{{role}}}") for role in ROLES)
    judges = judges.replace('name = "ours"', 'name = "ours"\ndefault = true')
    judges += entry.format(role="critic", name="terse", port=port)
    services = {"embedding": [], **{role: ["--backend", "offline"] for role in ROLES}}
    try:
        async with gateway_process(services, judges, tmp_path) as target, DramaturgClient(target) as client:
            await all_serving(client, 5)
            panel = [("critic", "ours"), ("critic", "terse")]
            results = [await judged(client, pairs) for pairs in ([], panel, panel[1:])]
    finally:
        terse.terminate()
        await terse.wait()
    names = [
        {one.assessment.provenance.name for one in result.assessments if one.role == "critic"}
        for result in results
    ]
    assert names == [{"offline-critic"}, {"offline-critic", "terse-critic"}, {"terse-critic"}]
    outcomes = {verdict.criterion: verdict.outcome for verdict in results[2].verdicts}
    assert outcomes["no_duplicate_steps"] == 2
    assert all(len(result.verdicts) == 7 for result in results)


async def judged(client: DramaturgClient, pairs: list[tuple[str, str]]) -> Any:
    """The result of a script that says one step twice, with these judges."""
    request = scripts_request(1, judges=[JudgeSelection(role=role, judge=name) for role, name in pairs])
    request.candidates[0].script.CopyFrom(steps("Heat water.", "Pour it.", "Heat water.", "Wait."))
    return (await evaluate_result(client, request, timeout=60)).candidates[0]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(600)
async def test_released_scripts_are_all_accounted_for(tmp_path: Path, data_dir: Path) -> None:
    """Two hundred scripts through separate processes: PASS + FAIL + ABSTAIN is seven times the candidates."""
    rows, out, count = tmp_path / "rows.jsonl", tmp_path / "out", 200
    converted = await dramaturg("convert", "coscript", data_dir / "coscript" / "test_data.json", rows)
    assert converted.code == 0, converted.err
    entry = '[[gateway.judges]]\nrole = "{role}"\nname = "ours"\ntarget = "127.0.0.1:{port}"\n'
    judges = "".join(entry.format(role=role, port=f"{{{role}}}") for role in ROLES)
    services = {"embedding": [], **{role: ["--backend", "offline"] for role in ROLES}}
    async with gateway_process(services, judges, tmp_path) as target:
        async with DramaturgClient(target) as client:
            await all_serving(client, len(ROLES))
        options = ("--limit", str(count), "--target", target, "--json", "--out", out)
        async with start("evaluate", "scripts", rows, *options) as process:
            done = await finish(process, timeout=500)
    assert done.code == 0, done.err
    assert_accounted(done.json, count)
    assert [row["task"]["id"] for row in read_jsonl(out / "results.jsonl")] == [
        json.loads(line)["task"]["id"] for line in rows.read_text(encoding="utf-8").splitlines()[:count]
    ]
