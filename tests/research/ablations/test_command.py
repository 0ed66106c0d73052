"""``dramaturg research ablate`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.generation.v1 import generation_service_pb2 as generation
from dramaturg.cli.main import app
from dramaturg.judge.criteria import ABSEVAL, EXECUTABLE, NO_DUPLICATE_STEPS, NO_MISSING_STEPS
from dramaturg.judge.verdicts import failed
from tests.support.command_line import ROOT, dramaturg, read_jsonl
from tests.support.evaluations import in_a_thread
from tests.support.gateway import Fake, agents, all_pass, gateway_target, scripts_request
from tests.support.judges import all_pass as answer_all_pass
from tests.support.openai_server import Body, OpenAIServer

pytestmark = pytest.mark.usefixtures("runs_enabled")

EXECUTE = ROOT / "services" / "agents" / "execute" / "prompts" / "execute.md"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "ablate", *map(str, arguments)], env={"COLUMNS": "200"})


def rows(folder: Path, count: int = 3) -> Path:
    requests = []
    for number in range(count):
        task = Task(id=f"t{number}", goal=f"Make tea {number}", constraints=["at home"])
        request = scripts_request(2, task=task)
        requests.append(json.dumps(MessageToDict(request)))
    file = folder / "rows.jsonl"
    file.write_text("\n".join(requests), encoding="utf-8")
    return file


def failing(role: str, criterion: str) -> Assessment:
    """PASS for every criterion of a role but one."""
    found = all_pass(role)
    for verdict in found.verdicts:
        if verdict.criterion == criterion:
            verdict.CopyFrom(failed(criterion))
    return found


async def critic(request: Any) -> Assessment:
    """Sees a step missing only beside a gold answer, and a repetition only with the small model."""
    if request.options.model == "small":
        return failing("critic", NO_DUPLICATE_STEPS)
    return failing("critic", NO_MISSING_STEPS) if request.reference.steps else all_pass("critic")


async def single(request: Any) -> Assessment:
    del request
    return failing("script-judge", EXECUTABLE)


FAKES = (*agents(Fake("critic", critic)), Fake("script-judge", single))


def by_variant(result: Result) -> dict[str, Any]:
    return {one["variant"]: one for one in json.loads(result.stdout)["variants"]}


def verdicts(variant: Any, criterion: str) -> Any:
    """The verdicts of a variant by one criterion, or by all ("")."""
    figures = variant["summary"]["scripts"]["figures"]
    return next(one for one in figures if one["all_models"] and one["criterion"] == criterion)


def test_variants_are_compared_with_the_base(tmp_path: Path) -> None:
    variants = ("no-gold-answer", "single-judge", "model:critic=small")
    options = [part for name in variants for part in ("--variant", name)]
    with in_a_thread(lambda: gateway_target(*FAKES)) as target:
        result = run(rows(tmp_path), "--target", target, "--out", tmp_path / "out", *options, "--json")
    # This gateway has no alignment service; what was judged is kept and said.
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["rows"], found["compared_with"], found["labels"]) == (3, "base", None)
    assert "alignment" in found["missing_figures"]
    assert found["criteria"] == list(ABSEVAL)
    described = by_variant(result)
    assert list(described) == ["base", *variants]
    rates = {name: verdicts(one, NO_MISSING_STEPS)["pass_rate"]["value"] for name, one in described.items()}
    assert rates == {"base": 0.0, "no-gold-answer": 1.0, "single-judge": 1.0, "model:critic=small": 1.0}
    assert verdicts(described["model:critic=small"], NO_DUPLICATE_STEPS)["fail_count"] == 6
    single = verdicts(described["single-judge"], "")
    assert (single["pass_count"], single["fail_count"], single["verdict_count"]) == (36, 6, 42)
    assert single["pass_rate"]["value"] == 36 / 42
    assert described["single-judge"]["agreement"] == {}
    assert described["single-judge"]["decided_criteria"] == list(ABSEVAL)
    for name, one in described.items():
        results = read_jsonl(Path(one["results"]))
        assert len(results) == 3, name
        assert [result["tags"]["line"] for result in results] == ["1", "2", "3"]


def respond(body: Body) -> Any:
    """Passes everything."""
    form = body["response_format"]["json_schema"]
    request = generation.GenerateRequest(
        messages=[generation.Message(text=body["messages"][-1]["content"])],
        json_format=generation.JsonFormat(name=form["name"], schema=json.dumps(form["schema"])),
    )
    return answer_all_pass(request).text


@pytest.mark.slow
async def test_what_variants_share_is_bought_once_and_labels_are_agreed_with(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    own = EXECUTE.read_text(encoding="utf-8")
    (prompts / "execute.md").write_text(
        own.replace("# user\n", "# user\n\nMy own words.\n", 1), encoding="utf-8"
    )
    labels = tmp_path / "labels.jsonl"
    said = [
        {"item": f"t{task}/c0", "criterion": name, "annotator": "x", "label": "FAIL" if task else "PASS"}
        for task in range(2)
        for name in ABSEVAL
    ]
    labels.write_text("\n".join(map(json.dumps, said)), encoding="utf-8")
    async with OpenAIServer(respond) as server:
        config = tmp_path / "dramaturg.toml"
        config.write_text(
            f'[generation]\nledger = "{tmp_path / "ledger.sqlite3"}"\n'
            f'[generation.providers.local]\nkind = "chat"\nbase_url = "{server.base_url}"\n'
            'default_model = "m"\n'
        )
        done = await dramaturg(
            "research",
            "ablate",
            rows(tmp_path, 2),
            "--labels",
            labels,
            "--variant",
            "no-gold-answer",
            "--variant",
            "direct-gold-answer",
            "--variant",
            f"prompts:execute={prompts}",
            "--out",
            tmp_path / "out",
            "--json",
            environment={"DRAMATURG_CONFIG": str(config)},
        )
        bodies = server.bodies
    assert done.code == 0, done.err
    found = done.json
    assert found["missing_figures"] == ""
    variants = {one["variant"]: one for one in found["variants"]}
    base, bare, direct, worded = variants.values()
    # Two tasks with two candidates: two gold answers, and three agents a candidate.
    assert base["summary"]["usage"]["provider_call_count"] == 2 + 3 * 4
    assert bare["summary"]["usage"]["cache_hit_count"] == 2 * 4
    assert direct["summary"]["usage"]["cache_hit_count"] >= 2 * 4
    assert worded["summary"]["usage"]["provider_call_count"] == 4
    assert worded["summary"]["usage"]["cache_hit_count"] == 2 + 2 * 4
    assert sum("My own words." in json.dumps(body["messages"]) for body in bodies) == 4
    # Of two labelled scripts one is right in everything and one in nothing; all verdicts pass.
    agreement = base["agreement"]["all"]
    assert (agreement["n"], agreement["answered"], agreement["equal"]) == (14, 14, 7)
    assert agreement["rate"]["value"] == agreement["mean_squared_error"] == 0.5
    assert agreement["majority_baseline"] == 0.5
    # The 14 labels are of two tasks, which are the clusters.
    assert 0.0 <= agreement["rate"]["lower"] < 0.2 < 0.8 < agreement["rate"]["upper"] <= 1.0
    assert (found["labels"], found["undecided_labels"]) == (14, 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--variant", "nothing"], "none of base"),
        (["--variant", "prompts:critic=."], "needs services of its own"),
    ],
)
def test_wrong_usage_says_what_is_wrong(tmp_path: Path, arguments: list[str], problem: str) -> None:
    result = run(rows(tmp_path), "--target", "127.0.0.1:1", *arguments)
    assert (result.exit_code, problem in result.stderr) == (2, True)


def test_labels_of_several_rows_are_refused_before_anything_is_evaluated(tmp_path: Path) -> None:
    file = rows(tmp_path, 1)
    one = file.read_text(encoding="utf-8").strip()
    file.write_text(f"{one}\n{one}\n", encoding="utf-8")
    labels = tmp_path / "labels.csv"
    labels.write_text("item,criterion,annotator,label\nt0/c0,executable,ann,PASS\n", encoding="utf-8")
    result = run(file, "--labels", labels, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "'t0/c0' of row 1, 't0/c0' of row 2" in result.output
    assert not (tmp_path / "out").exists()


def test_rows_of_all_variants_are_one_dataset(tmp_path: Path) -> None:
    made = tmp_path / "variants.jsonl"
    result = run(rows(tmp_path, 2), "--variant", "single-judge", "--rows", made)
    assert result.exit_code == 0, result.output
    written = read_jsonl(made)
    assert [(one["tags"]["variant"], one["tags"]["line"]) for one in written] == [
        ("base", "1"),
        ("base", "2"),
        ("single-judge", "1"),
        ("single-judge", "2"),
    ]
    assert ["mechanism" in one for one in written] == [False, False, True, True]
    refused = run(rows(tmp_path, 2), "--variant", f"prompts:critic={tmp_path}", "--rows", made)
    assert (refused.exit_code, "needs services of its own" in refused.stderr) == (2, True)
