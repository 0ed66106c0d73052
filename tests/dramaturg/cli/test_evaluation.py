"""A file is evaluated as a run, in a gateway that the command starts."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.api.evaluation.v1.run_pb2 import RunPolicy
from dramaturg.cli.evaluation import default_folder
from dramaturg.cli.main import app
from dramaturg.testing import until
from tests.support.command_line import dramaturg, finish, read_jsonl, start
from tests.support.openai_server import Answer, Body, OpenAIServer, in_thread
from tests.support.run_service import no_runs, run_service
from tests.support.scripted_model import approve


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    monkeypatch.setenv("MODEL", "m")


def rows(folder: Path) -> str:
    """Tasks with a script each."""
    lines = [
        {
            "task": {"goal": f"Paint a wall, number {number}"},
            "candidates": [{"id": "a", "text": "1. Buy paint.\n2. Paint."}],
        }
        for number in range(5)
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("Incorrect API key provided", status=401), "Incorrect API key provided"),
        (Answer("The model `m` does not exist", status=404, error_code="model_not_found"), "does not exist"),
        (Answer("no credit", status=402), "no credit"),
    ],
)
def test_where_no_model_can_be_called_the_provider_s_words_are_told(
    answer: Answer, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_remedied = False

    def respond(body: Body) -> Answer | str:
        if not is_remedied:
            return answer
        return approve(body) if "response_format" in body else Answer("no messages", status=400)

    command = ["eval", "--kind", "scripts", rows(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    with in_thread(OpenAIServer(respond)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        result = CliRunner().invoke(app, command)
        is_remedied = True
        again = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert words in result.stderr
    # The first samples are not kept as they are.
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["judgement_count"] == 35


@pytest.mark.slow
async def test_the_options_of_the_run_are_those_of_its_spec(tmp_path: Path) -> None:
    options = (
        "--model m1 --model m2 --name pilot --label team=x=y --label stage=1 --timeout 1.5 --concurrency 4 "
        "--set limits.priority=-3 --set policy.sample_attempt_count=5 --set policy.max_failed_count=0 "
        "--set policy.max_failed_fraction=0.5 --set policy.max_abstained_fraction=0.25 "
        "--set policy.min_coverage=0.75 --set policy.fail_fast_sample_count=0 "
        "--set policy.max_missing_gold_answer_fraction=0.5"
    )
    scripted = no_runs()
    command = ("eval", "--kind", "scripts", rows(tmp_path), "--detach", "--target")
    async with run_service(scripted) as target:
        for given in (options.split(), ["--name", ""], ["--model", "m1"]):
            done = await dramaturg(*command, target, *given)
            assert done.code == 0, done.err
    spec, bare, other = (request.spec for request in scripted.created)
    assert (list(spec.models), spec.display_name) == (["m1", "m2"], "pilot")
    found_by = spec.labels.pop("evaluation")
    assert dict(spec.labels) == {"team": "x=y", "stage": "1"}
    assert (spec.limits.max_concurrent_samples, spec.limits.priority) == (4, -3)
    policy = RunPolicy(
        sample_attempt_count=5,
        max_failed_count=0,
        max_failed_fraction=0.5,
        max_abstained_fraction=0.25,
        min_coverage=0.75,
        fail_fast_sample_count=0,
        max_missing_gold_answer_fraction=0.5,
    )
    policy.sample_timeout.FromMilliseconds(1500)
    assert spec.policy == policy
    policy = RunPolicy()
    policy.sample_timeout.FromSeconds(600)
    assert (bare.policy, bare.display_name, list(bare.models)) == (policy, "", [])
    # A command with other models is another run.
    assert len({found_by, bare.labels["evaluation"], other.labels["evaluation"]}) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--label", "team"), "--label 'team' is not of the form KEY=VALUE"),
        (("--label", "evaluation=x"), "--label evaluation: the command sets this label itself"),
        (("--set", "mechanism"), "--set 'mechanism' is not of the form FIELD=VALUE"),
        (("--set", "mechanisn=agents"), "there is no field mechanisn; did you mean mechanism?"),
        (("--set", "mechanism=committee"), "the values are agents, single-judge"),
        (("--set", "sampling.temperature=9"), "--set sampling.temperature=9: "),
        (("--set", "policy.min_covrage=1"), "there is no field min_covrage; did you mean min_coverage?"),
        (("--set", "policy.min_coverage=high"), "'high' is no number"),
        (("--set", "policy=1"), "policy has fields: policy.max_failed_fraction"),
        (("--pair", "a,b"), "--pair: rows of the kind scripts have no such option"),
        (("--text", "answer"), "--text and other columns are for tables of texts"),
        (("--rows", "ROWS", "--model", "m"), "--rows: a row names no models that write candidates"),
    ],
)
def test_what_a_run_cannot_have_is_told(options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    given = (str(tmp_path / "rows.jsonl") if one == "ROWS" else one for one in options)
    done = CliRunner().invoke(app, ["eval", "--kind", "scripts", rows(tmp_path), *given])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert told in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["tasks.jsonl"]


@pytest.mark.slow
def test_models_write_the_scripts_that_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task": {"goal": "Paint a wall"}}\n')
    out = tmp_path / "out"

    def respond(body: Body) -> Answer | str:
        return approve(body) if "response_format" in body else "1. Buy paint.\n2. Paint."

    command = ["eval", "--kind", "scripts", str(tasks), "--out", str(out), "--json"]
    with in_thread(OpenAIServer(respond)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        unwritten = CliRunner().invoke(app, command)
        done = CliRunner().invoke(app, [*command, "--model", "ours", "--model", "theirs"])
    assert (unwritten.exit_code, "candidates" in unwritten.stderr) == (2, True)
    assert done.exit_code == 0, done.stderr
    (result,) = read_jsonl(out / "results.jsonl")
    assert {one["model"] for one in result["candidates"]} == {"ours", "theirs"}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
async def test_the_same_command_goes_on_and_buys_nothing_twice(
    end: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = Counter[str]()
    is_slow = asyncio.Event()

    async def answer(body: Body) -> Answer | str:
        if "response_format" not in body:  # a check of the model, which is not bought
            return Answer("no messages", status=400)
        prompt = json.dumps(body["messages"])
        if "number 4" in prompt and not is_slow.is_set():
            is_slow.set()
            await asyncio.sleep(60)
        answered[prompt] += 1
        return approve(body)

    file, out, data = rows(tmp_path), tmp_path / "out", tmp_path / "data" / "dramaturg"
    command = ("eval", "--kind", "scripts", file, "--out", out, "--concurrency", "1", "--json")
    async with OpenAIServer(answer) as server:
        environment = {
            "OPENAI_BASE_URL": server.base_url,
            "DRAMATURG_GENERATION_LEDGER": str(tmp_path / "ledger.sqlite3"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
        }
        async with start(*command, environment=environment) as process:
            await until(is_slow.is_set, 60)
            process.send_signal(end)
            stopped = await finish(process)
        kept = list((data / "evaluations").iterdir())
        ended = await dramaturg(*command, environment=environment)
    if end is signal.SIGINT:
        assert stopped.code == 130, stopped.err
        assert "interrupted: 4 of 5; the same command goes on" in stopped.err
        assert stopped.json["sample_count"] == 4
    assert len(kept) == 1
    assert ended.code == 0, ended.err
    assert ended.json["sample_count"] == 5
    assert [row["task"]["goal"][-1] for row in read_jsonl(out / "results.jsonl")] == list("01234")
    # Calls that were in flight may be bought again: those of the last sample.
    assert not [prompt for prompt, count in answered.items() if count > 1 and "number 4" not in prompt]
    assert not list((data / "evaluations").iterdir())


@pytest.mark.parametrize("gap_seconds", [0.05, 0.5])
async def test_a_second_interruption_ends_the_command_at_once(gap_seconds: float, tmp_path: Path) -> None:
    is_asked = asyncio.Event()

    async def answer(body: Body) -> Answer:
        if "response_format" in body:
            is_asked.set()
            await asyncio.sleep(60)
        return Answer("no messages", status=400)

    command = ("eval", "--kind", "scripts", rows(tmp_path), "--out", tmp_path / "out")
    async with OpenAIServer(answer) as server:
        environment = {"OPENAI_BASE_URL": server.base_url}
        async with start(*command, environment=environment) as process:
            await until(is_asked.is_set, 60)
            process.send_signal(signal.SIGINT)
            await asyncio.sleep(gap_seconds)
            process.send_signal(signal.SIGINT)
            stopped = await finish(process)
    assert stopped.code == 130, stopped.err
    assert stopped.err.endswith("\ninterrupted\n")
    assert "Traceback" not in stopped.err


async def test_a_folder_with_other_results_is_refused_unless_they_are_replaced(tmp_path: Path) -> None:
    file, out = rows(tmp_path), tmp_path / "out"
    command = ("eval", "--kind", "scripts", file, "--out", out, "--json")
    first = await dramaturg(*command, "--limit", "1")
    again = await dramaturg(*command, "--limit", "1", "--concurrency", "2")
    other_rows = await dramaturg(*command, "--limit", "2")
    other_options = await dramaturg(*command, "--limit", "1", "--set", "gold_answer_source=none")
    assert (first.code, again.code) == (0, 0), first.err
    for refused in (other_rows, other_options):
        assert (refused.code, refused.out) == (2, "")
        assert "--replace" in refused.err
    assert len(read_jsonl(out / "results.jsonl")) == 1
    replaced = await dramaturg(*command, "--limit", "2", "--replace")
    assert replaced.code == 0, replaced.err
    assert len(read_jsonl(out / "results.jsonl")) == 2
    (out / "evaluation.json").unlink()
    unknown = await dramaturg(*command, "--limit", "2")
    assert unknown.code == 2


def test_sampling_options_reach_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(body: Body) -> Answer:
        return Answer("", refusal="No.")

    options = (
        "--set",
        "sampling.temperature=0.5",
        "--set",
        "sampling.top_p=0.9",
        "--set",
        "sampling.max_output_tokens=700",
    )
    more = ("--set", "sampling.reasoning_effort=low", "--set", "sampling.seed=3", "--limit", "1")
    with in_thread(OpenAIServer(refuse)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        CliRunner().invoke(
            app,
            ["eval", "--kind", "scripts", rows(tmp_path), "--out", str(tmp_path / "out"), *options, *more],
        )
        body = next(body for body in server.bodies if body["messages"])
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 700)
    assert (body["reasoning_effort"], body["seed"]) == ("low", 3)


def test_commands_within_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = set()
    for _ in range(3):
        folder = default_folder()
        folder.mkdir(parents=True)
        folders.add(folder)
    assert len(folders) == 3
