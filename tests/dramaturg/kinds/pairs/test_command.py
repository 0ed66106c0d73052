"""``dramaturg eval --kind pairs`` and ``dramaturg research roles`` as processes, against a real gateway."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from scipy import stats
from typer.testing import CliRunner

from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest, PairResult
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.cli.main import app
from dramaturg.kinds.pairs.text_metrics import DEFAULT_METRICS, METRICS, variant
from services.alignment.text import score
from tests.support.command_line import dramaturg, finish, read_jsonl, start
from tests.support.figures import figure
from tests.support.openai_server import Body, OpenAIServer
from tests.support.pairs import SOURCE, everyone, model, serve_fakes, serve_platform
from tests.support.readers import prefer_text, votes, with_tokens

pytestmark = pytest.mark.usefixtures("runs_enabled")

GOOD = [f"The bridge {number} was closed because it is unsafe." for number in range(6)]
BAD = [f"Bridge {number} exists." for number in range(6)]
FIRST, SECOND = pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND


def pair(number: int, *, best_first: bool = True, **fields: Any) -> EvaluatePairsRequest:
    """A pair whose better text is the longer one."""
    texts = [GOOD[number], BAD[number]] if best_first else [BAD[number], GOOD[number]]
    first, second = (ComparedText(text=text) for text in texts)
    return EvaluatePairsRequest(
        **{
            "id": f"p{number}",
            "source": f"{SOURCE} It has the number {number}.",
            "first": first,
            "second": second,
            "human_preference": FIRST if best_first else SECOND,
            **fields,
        }
    )


def write(path: Path, requests: Sequence[EvaluatePairsRequest]) -> Path:
    path.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in requests), encoding="utf-8")
    return path


def mixed() -> list[EvaluatePairsRequest]:
    return [pair(number, best_first=number % 2 == 0) for number in range(6)]


def questions(server: OpenAIServer) -> list[Body]:
    """The bodies of the calls that were bought: a check of a model has no messages."""
    return [body for body in server.bodies if body["messages"]]


def good_model() -> Any:
    vote = votes(prefer_text([*GOOD, *BAD]))
    return model(lambda body: with_tokens(vote(body), lambda _: -0.1))


async def summary(rows: Path, target: str, *options: str, code: int = 0) -> dict[str, Any]:
    common = ("--target", target, "--out", rows.parent / "out", "--json")
    finished = await dramaturg("eval", "--kind", "pairs", rows, *common, *options)
    assert finished.code == code, finished.err
    found: dict[str, Any] = finished.json
    return found


def results(rows: Path) -> list[PairResult]:
    return [ParseDict(line, PairResult()) for line in read_jsonl(rows.parent / "out" / "results.jsonl")]


def methods_of(found: dict[str, Any]) -> dict[str, Any]:
    """The methods over all pairs, by name."""
    return {one["method"]: one for one in found["pairs"]["methods"] if not one["tags"]}


def share_right(found: dict[str, Any], method: str, **tags: str) -> float:
    """The accuracy of a method in a group."""
    one = figure(found["pairs"]["methods"], method=method, tags=tags)
    value: float = one["accuracy"]["accuracy"]["value"]
    return value


def correlation_of(found: dict[str, Any], method: str) -> Any:
    return figure(found["pairs"]["correlations"]["measures"], measure=method)


async def test_every_method_is_measured_against_people(tmp_path: Path) -> None:
    rows = write(tmp_path / "pairs.jsonl", mixed())
    async with serve_platform(good_model()) as (target, server):
        found = await summary(
            rows, target, "--set", "baselines=llm,fixed-roles", "--set", "text_metrics=rouge-1"
        )
        # One for the roles, and both orders of three methods.
        assert len(questions(server)) == 6 * 7
    assert found["usage"]["provider_call_count"] == 6 * 7
    assert found["sample_count"] == 6
    assert (found["pairs"]["pair_count"], found["pairs"]["labelled_pair_count"]) == (6, 6)
    methods = methods_of(found)
    judged = {"roles", "llm", "fixed-roles"}
    assert set(methods) == judged | {f"{name} (DRPEScore)" for name in judged} | {"longer", "rouge-1"}
    for name in ("roles", "llm", "fixed-roles", "longer"):
        accuracy = methods[name]["accuracy"]
        counts = (accuracy["answered_count"], accuracy["item_count"])
        assert (accuracy["accuracy"]["value"], counts) == (1.0, (6, 6))
        assert correlation_of(found, name)["pearson"]["value"] == pytest.approx(1.0)
    assert methods["roles"]["accuracy"]["accuracy"]["lower"] == pytest.approx(0.6097, abs=1e-4)
    assert [result.id for result in results(rows)] == [f"p{number}" for number in range(6)]


async def test_correlations_are_of_scores_for_the_first_text(tmp_path: Path) -> None:
    wrong = mixed()
    wrong[0].human_preference = SECOND
    rows = write(tmp_path / "pairs.jsonl", wrong)
    async with serve_fakes(everyone(FIRST)) as target:
        found = await summary(rows, target, "--sweep", "0", "--set", "text_metrics=")
    human = [1.0 if one.human_preference == FIRST else 0.0 for one in wrong]
    longer = [1.0 if len(one.first.text) > len(one.second.text) else 0.0 for one in wrong]
    correlation = correlation_of(found, "longer")
    assert correlation["pearson"]["value"] == pytest.approx(stats.pearsonr(human, longer).statistic)
    assert correlation["kendall"]["value"] == pytest.approx(stats.kendalltau(human, longer).statistic)
    assert share_right(found, "longer") == pytest.approx(5 / 6)
    # A judge that always says "first" has no correlation, which is not 0.
    assert share_right(found, "roles k=0") == pytest.approx(2 / 6)
    pearson = correlation_of(found, "roles k=0")["pearson"]
    assert pearson["value"] is None
    assert pearson["undefined"]


async def test_labels_that_never_vary_leave_correlations_undefined_until_texts_are_shuffled(
    tmp_path: Path,
) -> None:
    rows = write(tmp_path / "pairs.jsonl", [pair(number) for number in range(6)])
    async with serve_fakes(everyone(FIRST)) as target:
        constant = await summary(rows, target, "--sweep", "0", "--set", "text_metrics=")
        assert correlation_of(constant, "longer")["pearson"]["value"] is None
        options = ("--sweep", "0", "--set", "text_metrics=", "--shuffle", "1", "--replace")
        shuffled = await summary(rows, target, *options)
    assert share_right(shuffled, "longer") == 1.0
    assert correlation_of(shuffled, "longer")["pearson"]["value"] == pytest.approx(1.0)
    assert {one.tags["presentation-seed"] for one in results(rows)} == {"1"}
    assert {one.tags["swapped"] for one in results(rows)} == {"true", "false"}


def test_a_sweep_is_the_rows_of_a_run(tmp_path: Path) -> None:
    made = tmp_path / "sweep.jsonl"
    rows = write(tmp_path / "pairs.jsonl", mixed()[:2])
    options = ["--sweep", "0,2", "--shuffle", "7", "--rows", str(made)]
    done = CliRunner().invoke(app, ["eval", "--kind", "pairs", str(rows), *options])
    assert done.exit_code == 0, done.output
    requests = [ParseDict(one, EvaluatePairsRequest()) for one in read_jsonl(made)]
    lines = [(one.tags["line"], one.tags["k"]) for one in requests]
    assert lines[:4] == [("1", "0"), ("1", "2"), ("2", "0"), ("2", "2")]
    assert (requests[1].roles.coarse_count, requests[1].roles.fine_count) == (1, 1)
    # Baselines and metrics are those of the first number of roles; no results are written.
    assert requests[0].text_metrics
    assert not requests[1].text_metrics
    assert not (tmp_path / "out").exists()


async def test_a_sweep_compares_the_same_pairs_with_each_number_of_roles(tmp_path: Path) -> None:
    rows = write(tmp_path / "pairs.jsonl", mixed()[:3])
    options = ("--sweep", "0,2", "--set", "order=as-given")
    async with serve_platform(good_model()) as (target, server):
        found = await summary(rows, target, *options, "--set", "text_metrics=", "--set", "baselines=llm")
        # k=0: votes and the baseline; k=2: roles and votes.
        assert len(questions(server)) == 3 * 4
    assert (found["sample_count"], found["pairs"]["pair_count"]) == (6, 3)
    methods = methods_of(found)
    assert {"roles k=0", "roles k=2", "llm", "longer"} <= set(methods)
    assert methods["roles k=2"]["accuracy"]["item_count"] == 3
    assert {methods[f"roles k={count}"]["requested_role_count"] for count in (0, 2)} == {0, 2}
    assert [methods[f"roles k={count}"]["most_role_count"] for count in (0, 2)] == [3, 5]
    assert [one.tags["k"] for one in results(rows)] == ["0", "2"] * 3
    assert [len(one.roles.roles) for one in results(rows)][:2] == [3, 5]


async def test_without_judges_nothing_is_asked(tmp_path: Path) -> None:
    rows = write(tmp_path / "pairs.jsonl", mixed())
    asked: list[pb.ComparePairRequest] = []

    async def compare(request: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
        asked.append(request)
        return await everyone(FIRST)(request, context)

    async with serve_fakes(compare) as target:
        found = await summary(rows, target, "--offline")
    assert not asked
    assert set(methods_of(found)) >= {"longer", "rouge-1", "rouge-l", "bleu", "chrf", "meteor"}
    assert found["usage"]["provider_call_count"] == 0
    # There is no embedding service behind this gateway: an abstention, not a wrong answer.
    embedding = methods_of(found)["embedding"]
    assert embedding["accuracy"]["answered_count"] == 0
    assert embedding["accuracy"]["accuracy"]["value"] is None
    assert embedding["abstentions_by_reason"] == {"NOT_SUPPORTED": 6}


async def test_abstentions_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = write(tmp_path / "pairs.jsonl", mixed())

    async def compare(request: pb.ComparePairRequest, context: Any) -> pb.ComparePairResponse:
        if request.first in (GOOD[0], BAD[1]):
            raise RuntimeError("broken")
        return await everyone(FIRST)(request, context)

    async with serve_fakes(compare) as target:
        found = await summary(rows, target, "--sweep", "0", "--set", "text_metrics=", code=4)
    judged = methods_of(found)["roles k=0"]
    accuracy = judged["accuracy"]
    assert (accuracy["item_count"], accuracy["answered_count"], accuracy["correct_count"]) == (6, 4, 2)
    assert accuracy["accuracy"]["value"] == 0.5
    assert accuracy["accuracy_abstentions_wrong"]["value"] == pytest.approx(2 / 6)
    assert judged["abstentions_by_reason"] == {"JUDGE_UNAVAILABLE": 2}


async def test_groups_and_pairs_that_nobody_labelled(tmp_path: Path) -> None:
    requests = [
        pair(0, tags={"kind": "news"}),
        pair(1, best_first=False, tags={"kind": "plot"}),
        pair(2, human_preference=pb.PREFERENCE_UNSPECIFIED, tags={"kind": "news"}),
    ]
    rows = write(tmp_path / "pairs.jsonl", requests)
    async with serve_fakes(everyone(FIRST)) as target:
        found = await summary(rows, target, "--sweep", "0", "--set", "text_metrics=", "--group-by", "kind")
        table = await dramaturg(
            *("eval", "--kind", "pairs", str(rows), "--target", target, "--out", str(tmp_path / "out")),
            *("--sweep", "0", "--set", "text_metrics=", "--group-by", "kind"),
        )
    assert (found["pairs"]["pair_count"], found["pairs"]["labelled_pair_count"]) == (3, 2)
    assert share_right(found, "roles k=0", kind="news") == 1.0
    assert share_right(found, "roles k=0", kind="plot") == 0.0
    assert "have a human preference" in table.out


@pytest.mark.parametrize(
    "options",
    [
        ("--offline", "--sweep", "0,2"),
        ("--sweep", "0,x"),
        ("--sweep", "51"),
        ("--set", "roles.objective_set=poems"),
        ("--set", "text_metrics=moverscore"),
        ("--offline", "--set", "baselines=llm"),
    ],
)
async def test_wrong_usage(tmp_path: Path, options: Sequence[str]) -> None:
    rows = write(tmp_path / "pairs.jsonl", mixed())
    finished = await dramaturg("eval", "--kind", "pairs", str(rows), "--target", "localhost:1", *options)
    assert finished.code == 2
    assert "--" in finished.err


async def test_roles_of_texts_are_written_and_can_be_given_back(tmp_path: Path) -> None:
    rows = write(tmp_path / "pairs.jsonl", mixed()[:2])
    out = tmp_path / "roles.jsonl"
    async with serve_platform(good_model()) as (target, server):
        finished = await dramaturg("research", "roles", str(rows), "--target", target, "--out", str(out))
        assert finished.code == 0, finished.err
        assert len(server.requests) == 2
    found = read_jsonl(out)
    assert [one["id"] for one in found] == ["p0", "p1"]
    kept = [role["type"] for role in found[0]["roles"]]
    assert len(kept) == 3 + 4
    assert "Structural engineer" in kept
    assert found[0]["clustering"]["clusters"]
    assert "Structural" in finished.out


async def test_texts_without_roles_say_why(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A text.", encoding="utf-8")
    out = tmp_path / "roles.jsonl"
    async with serve_fakes(everyone(FIRST)) as target:
        finished = await dramaturg(
            *("research", "roles", tmp_path / "text.txt", "--target", target, "--out", out),
            *("--objective", "script"),
        )
    assert finished.code == 1
    (found,) = read_jsonl(out)
    assert found["id"] == "text"
    assert len(found["roles"]) == 3
    assert "role service failed" in found["failure"]


@pytest.mark.data
async def test_the_text_baselines_run_on_all_released_pairs(tmp_path: Path, data_dir: Path) -> None:
    rows = tmp_path / "pairs.jsonl"
    converted = await dramaturg(
        "research", "convert", "goyal", str(data_dir / "drpe" / "cnn_human.json"), str(rows), "--seed", "7"
    )
    assert converted.code == 0, converted.err
    metrics = ("--set", "text_metrics=rouge-1,rouge-l,bleu,chrf,meteor")
    async with serve_fakes(everyone(FIRST)) as target:
        found = await summary(rows, target, "--offline", *metrics)
    assert (found["pairs"]["pair_count"], found["pairs"]["labelled_pair_count"]) == (81, 81)
    methods = methods_of(found)
    longer = methods["longer"]["accuracy"]
    assert (longer["item_count"], longer["correct_count"]) == (81, 70)
    assert round(longer["accuracy"]["value"], 3) == 0.864
    # Pearson of two 0/1 variables is phi; in random order it is near 2 x accuracy - 1.
    assert correlation_of(found, "longer")["pearson"]["value"] == pytest.approx(0.729, abs=0.05)
    for name, method in methods.items():
        accuracy, pearson = method["accuracy"]["accuracy"], correlation_of(found, name)["pearson"]
        assert accuracy["lower"] < accuracy["value"] < accuracy["upper"]
        assert pearson["lower"] < pearson["value"]
    assert found["pairs"]["best_baseline"] == "longer"


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_greedy_matching_on_all_released_pairs(tmp_path: Path, data_dir: Path) -> None:
    """The figures of docs/research/pairs.md."""
    rows = tmp_path / "pairs.jsonl"
    source = data_dir / "drpe" / "cnn_human.json"
    assert (await dramaturg("research", "convert", "goyal", source, rows, "--seed", "7")).code == 0
    names = ("embedding-greedy", "embedding-greedy-precision", "embedding-greedy-recall")
    metrics = ["--set", f"text_metrics={','.join(names)}"]
    arguments: list[str | Path] = [rows, "--offline", *metrics, "--json", "--out", tmp_path / "out"]
    # On a busy machine threads that wait for each other take many times as long.
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    async with start("eval", "--kind", "pairs", *arguments, environment=environment) as process:
        finished = await finish(process, timeout=800)
    assert finished.code == 0, finished.err
    methods = methods_of(finished.json)
    found = [methods[name]["accuracy"] for name in names]
    assert [one["answered_count"] for one in found] == [81, 81, 81]
    assert [round(one["accuracy"]["value"], 3) for one in found] == [0.753, 0.593, 0.802]
    intervals = [[round(one["accuracy"][end], 3) for end in ("lower", "upper")] for one in found]
    assert intervals == [[0.649, 0.834], [0.484, 0.693], [0.703, 0.875]]


async def test_where_nobody_judges_nothing_is_said_of_judges(tmp_path: Path) -> None:
    rows = write(tmp_path / "pairs.jsonl", mixed()[:2])
    unset = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_KEY", "MODEL", "DRAMATURG_CONFIG"), "")
    finished = await dramaturg(
        *("eval", "--kind", "pairs", rows, "--offline", "--set", "text_metrics=rouge-1"),
        *("--out", tmp_path / "out"),
        environment=unset,
    )
    assert finished.code == 0, finished.err
    assert "longer" in finished.out
    assert "ROUGE-1, Porter stemmer, F1" in finished.out
    assert re.search(r"\bjudges\b", finished.err) is None  # a path may have the word in a name


def test_every_metric_is_one_of_the_alignment_service() -> None:
    assert all(map(variant, METRICS))
    assert variant("rouge-lsum-recall") == "ROUGE-L by sentences, Porter stemmer, recall"
    of_many_references = {name for name in score.METRICS if name.startswith("bertscore-idf")}
    assert {*METRICS, "length"} == set(score.METRICS) - of_many_references
    assert METRICS[: len(DEFAULT_METRICS)] == DEFAULT_METRICS
