"""The released human study: small by hand, and whole where the data is there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from typer.testing import CliRunner, Result

from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.cli.main import app
from dramaturg.service.validation import violations
from dramaturg_research.formats.goyal import BEST, WORST, read_study, vote_shares


def article(*annotators: tuple[list[str], list[str]], **fields: Any) -> dict[str, Any]:
    chosen = [{BEST: best, WORST: worst} for best, worst in annotators]
    texts = {name: {"text": f"{name} says so."} for name in ("a", "b", "c")}
    return {"article": "It happened.", "annotators": chosen, **texts, **fields}


CLEAR = article((["a"], ["c"]), (["a", "b"], ["c"]), (["b"], ["b"]))


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "convert", "goyal", *map(str, arguments)])


def test_the_first_system_of_each_list_counts_and_two_votes_decide() -> None:
    study = read_study({"17": CLEAR}, seed=0)
    (request,) = study.requests
    assert request.id == "17"
    assert {request.first.model, request.second.model} == {"a", "c"}
    assert dict(request.tags) == {"best": "a", "worst": "c", "presentation-seed": "0"}
    assert not violations(request)


@pytest.mark.parametrize(
    ("votes", "reason"),
    [
        ([(["a"], ["c"]), (["b"], ["c"]), (["c", "a"], ["c"])], "no majority for the best"),
        ([(["a"], ["a"]), (["a"], ["b"]), (["a"], ["c"])], "no majority for the worst"),
        ([(["a"], ["a"]), (["b"], ["b"]), (["c"], ["c"])], "no majority for the best and worst"),
        ([(["a"], ["a"]), (["a"], ["a"]), (["b"], ["c"])], "one summary is both best and worst"),
    ],
)
def test_articles_without_a_clear_pair_are_left_out(votes: Any, reason: str) -> None:
    study = read_study({"x": article(*votes)}, seed=0)
    assert not study.requests
    assert [(one.key, one.reason, one.malformed) for one in study.left_out] == [("x", reason, False)]


def test_every_listed_system_counts_in_the_shares() -> None:
    study = read_study({"1": CLEAR, "2": article((["c"], ["a"]), (["c"], ["a"]))}, seed=0)
    assert vote_shares(study, BEST) == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert vote_shares(study, WORST) == {"a": 0.5, "b": 0.0, "c": 0.5}


def test_the_order_is_drawn_and_the_label_goes_with_it() -> None:
    study = read_study({str(number): CLEAR for number in range(200)}, seed=5)
    firsts = Counter(request.first.model for request in study.requests)
    assert 70 < firsts["a"] < 130
    for request in study.requests:
        best_first = request.first.model == "a"
        assert request.human_preference == (pb.PREFERENCE_FIRST if best_first else pb.PREFERENCE_SECOND)
        assert request.first.text == f"{request.first.model} says so."
    # The same seed draws the same; an article keeps its order whatever stands beside it.
    alone = read_study({"7": CLEAR}, seed=5).requests[0]
    assert alone == next(request for request in study.requests if request.id == "7")
    other = read_study({str(number): CLEAR for number in range(200)}, seed=6)
    assert [one.first.model for one in other.requests] != [one.first.model for one in study.requests]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (7, "has no string article"),
        (article((["a"], ["z"])), "annotators[0].worst_summary"),
        (article(([], ["a"])), "annotators[0].best_summary"),
        (article(), "annotators"),
        (article((["a"], ["b"]), a={"text": 3}), "a: has no string text"),
    ],
)
def test_what_is_not_of_the_format_is_named(tmp_path: Path, wrong: Any, words: str) -> None:
    source, rows = tmp_path / "study.json", tmp_path / "pairs.jsonl"
    source.write_text(json.dumps({"bad": wrong, "good": CLEAR}), encoding="utf-8")
    result = convert(source, rows)
    assert result.exit_code == 1
    assert f"bad: {words}" in result.stderr
    assert len(rows.read_text().splitlines()) == 1


@pytest.mark.parametrize("content", ["[]", "{", ""])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: str) -> None:
    source = tmp_path / "study.json"
    source.write_text(content, encoding="utf-8")
    assert convert(source, tmp_path / "pairs.jsonl").exit_code == 2
    assert not (tmp_path / "pairs.jsonl").exists()


@pytest.mark.data
def test_the_released_study_gives_the_pairs_of_the_paper(tmp_path: Path, data_dir: Path) -> None:
    rows = tmp_path / "pairs.jsonl"
    result = convert(data_dir / "drpe" / "cnn_human.json", rows, "--seed", 7, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["pairs"], summary["articles"], summary["presentation-seed"]) == (81, 100, 7)
    assert summary["vote_shares"]["best"] == {"brio": 0.36, "gpt3": 0.58, "t0": 0.08}
    assert summary["vote_shares"]["worst"] == {"brio": 0.24, "gpt3": 0.09, "t0": 0.67}
    alphas = summary["krippendorff_alpha_masi"]
    assert [round(alphas[choice], 3) for choice in ("best", "worst")] == [0.050, 0.110]

    requests = [Parse(line, EvaluatePairsRequest()) for line in rows.read_text("utf-8").splitlines()]
    derived = json.loads((data_dir / "drpe" / "drpe_pairs_cnn_human.json").read_text("utf-8"))
    # By article: the two copies of the study number two articles the other way round.
    known = {pair["article"]: pair for pair in derived}
    assert len(known) == len(derived) == 81
    longer = 0
    for request in requests:
        pair = known.pop(request.source)
        texts = [request.first.text, request.second.text]
        best_first = request.human_preference == pb.PREFERENCE_FIRST
        assert (texts if best_first else texts[::-1]) == [pair["best"], pair["worst"]]
        longer += len(pair["best"]) > len(pair["worst"])
    assert round(longer / len(requests), 3) == 0.864
    assert len({request.human_preference for request in requests}) == 2
