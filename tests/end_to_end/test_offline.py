"""The whole house without a model: real processes, real services, real judges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import JUDGE_HEALTH_SERVING, Judge
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.judge.criteria import ABSEVAL
from tests.support.command_line import ROOT, dramaturg, finish, read_jsonl, start
from tests.support.examples import running_judge
from tests.support.figures import verdict_counts
from tests.support.gateway import evaluate_result, scripts_request, steps
from tests.support.processes import ServiceProcess

TASKS = ROOT / "examples" / "scripts" / "tasks.jsonl"
ROLES = ("synthesize", "critic", "execute", "commonsense")
OFFLINE_REASONS = {"NOT_SUPPORTED", "LOW_CONFIDENCE", "NOT_APPLICABLE"}


def assert_accounted(summary: dict[str, Any], candidates: int) -> None:
    assert summary["failed_sample_count"] == 0
    assert summary["scripts"]["candidate_count"] == candidates
    verdicts = verdict_counts(summary)
    assert sum(verdicts.values()) == len(ABSEVAL) * candidates
    assert sum(summary["abstentions_by_reason"].values()) == verdicts["ABSTAIN"]
    whole = [one for one in summary["scripts"]["figures"] if one["all_models"] and not one["tags"]]
    assert [one["criterion"] for one in whole] == [*ABSEVAL, ""]
    for criterion in ABSEVAL:
        assert sum(verdict_counts(summary, criterion=criterion).values()) == candidates


@asynccontextmanager
async def gateway_process(services: Mapping[str, list[str]], judges: str, folder: Path) -> AsyncIterator[str]:
    """Starts every service as a process of its own, and yields the gateway's address."""
    config = folder / "dramaturg.toml"
    async with AsyncExitStack() as stack:
        made = {
            name: ServiceProcess(
                "dramaturg", folder, {"DRAMATURG_CONFIG": str(config)}, "serve", name, *options
            )
            for name, options in {**services, "gateway": []}.items()
        }
        ports = {name: process.port for name, process in made.items()}
        tables = [
            f'[{role}]\nembedding_target = "127.0.0.1:{ports["embedding"]}"'
            for role in ROLES
            if role in ports
        ]
        config.write_text("\n".join(tables) + "\n" + judges.format(**ports))
        for process in made.values():
            stack.push_async_callback(process.stop)
        await asyncio.gather(*(process.start() for process in made.values()))
        yield made["gateway"].target


async def all_serving(client: DramaturgClient, count: int) -> None:
    """Waits until so many judges are serving."""
    judges: Sequence[Judge] = []
    try:
        async with asyncio.timeout(60):
            while sum(judge.health == JUDGE_HEALTH_SERVING for judge in judges) != count:
                await asyncio.sleep(0.1)
                with suppress(ServiceError):
                    judges = await client.list_judges(timeout=5)
    except TimeoutError:
        raise AssertionError(f"not all serve: {judges}") from None


async def test_the_samples_are_judged_in_one_process_without_a_model(tmp_path: Path) -> None:
    done = await dramaturg("eval", "--kind", "scripts", TASKS, "--limit", "2", "--json", "--out", tmp_path)
    assert done.code == 0, done.err
    assert "offline judges serve" in done.err
    assert_accounted(done.json, 8)
    assert set(done.json["abstentions_by_reason"]) <= OFFLINE_REASONS
    assert verdict_counts(done.json, criterion="no_duplicate_steps")["FAIL"] > 0
    assert done.json["usage"]["provider_call_count"] == 0
    names = {
        assessment["assessment"]["provenance"]["name"]
        for result in read_jsonl(tmp_path / "results.jsonl")
        for candidate in result["candidates"]
        for assessment in candidate["assessments"]
    }
    assert names == {"offline-critic", "offline-execute", "offline-commonsense"}


async def test_without_a_model_an_evaluation_is_refused(tmp_path: Path) -> None:
    selected = [option for role in ROLES for option in ("--judge", f"{role}=llm")]
    done = await dramaturg(
        "eval", "--kind", "scripts", TASKS, "--limit", "3", "--json", "--out", tmp_path / "out", *selected
    )
    assert (done.code, done.out) == (1, ""), done.err
    assert "no model provider is configured" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
async def test_every_service_as_a_process_of_its_own_and_a_third_partys_judge_by_name(tmp_path: Path) -> None:
    entry = '[[gateway.judges]]\nrole = "{role}"\nname = "{name}"\ntarget = "{target}"\n'
    judges = "".join(entry.format(role=role, name="ours", target=f"127.0.0.1:{{{role}}}") for role in ROLES)
    judges = judges.replace('name = "ours"', 'name = "ours"\ndefault = true')
    services = {"embedding": [], **{role: ["--backend", "offline"] for role in ROLES}}
    async with running_judge("terse_critic.py") as theirs:
        judges += entry.format(role="critic", name="terse", target=theirs)
        async with gateway_process(services, judges, tmp_path) as target, DramaturgClient(target) as client:
            await all_serving(client, 5)
            panel = [("critic", "ours"), ("critic", "terse")]
            results = [await judged(client, pairs) for pairs in ([], panel, panel[1:])]
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
@pytest.mark.usefixtures("runs_enabled")
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.endurance)])
async def test_released_scripts_are_all_accounted_for(tmp_path: Path, data_dir: Path, count: int) -> None:
    """Scripts through separate processes: PASS + FAIL + ABSTAIN is seven times the candidates."""
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out"
    converted = await dramaturg("convert", "coscript", data_dir / "coscript" / "test_data.json", rows)
    assert converted.code == 0, converted.err
    entry = '[[gateway.judges]]\nrole = "{role}"\nname = "ours"\ntarget = "127.0.0.1:{port}"\n'
    judges = "".join(entry.format(role=role, port=f"{{{role}}}") for role in ROLES)
    services = {"embedding": [], **{role: ["--backend", "offline"] for role in ROLES}}
    async with gateway_process(services, judges, tmp_path) as target:
        async with DramaturgClient(target) as client:
            await all_serving(client, len(ROLES))
        options = ("--limit", str(count), "--target", target, "--json", "--out", out)
        async with start("eval", "--kind", "scripts", rows, *options) as process:
            done = await finish(process, timeout=500)
    assert done.code == 4, done.err  # offline judges leave many verdicts open
    assert_accounted(done.json, count)
    assert [row["task"]["id"] for row in read_jsonl(out / "results.jsonl")] == [
        json.loads(line)["task"]["id"] for line in rows.read_text(encoding="utf-8").splitlines()[:count]
    ]
