"""The tables of DRPE from the released study, against figures that are calculated here."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from statistics import correlation, fmean

import pytest

from tests.support.openai_server import Answer, Body
from tests.support.readers import entries, prompt_of, shown, with_tokens
from tests.support.reproductions import check_outputs, read_csv, released_pairs, reproduce, reproduce_with

pytestmark = [pytest.mark.data, pytest.mark.timeout(540)]

LIMIT = 12
READERS = (
    "Reader driver",
    "Reader teacher",
    "Reader senator",
    "Reader farmer",
    "Reader nurse",
    "Reader banker",
)


def preferred(method: str, texts: tuple[str, str]) -> str:
    """The text that a method of the scripted model prefers, in either order: mostly the longer one."""
    one, other = sorted(texts, key=len, reverse=True)
    draw = hashlib.sha256(f"{method}/{one}/{other}".encode()).digest()[0]
    return one if draw % 10 < {"readers": 9, "objective": 7, "alone": 5}[method] else other


def has_confidence(texts: tuple[str, str]) -> bool:
    """Whether the judge without a role has log-probabilities for its vote on these texts."""
    return hashlib.sha256("/".join(sorted(texts)).encode()).digest()[0] % 2 == 0


def scripted(body: Body) -> Body | Answer:
    prompt = prompt_of(body)
    properties = body["response_format"]["json_schema"]["schema"]["properties"]
    if not properties.keys() & {"vote", "role_1"}:
        counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (coarse|fine)", prompt)}
        if counts.get("coarse", 3) == 3 and counts["fine"] in (1, 3):
            counts["fine"] -= 1  # of six roles one is missing, also when it is asked for again
        names = iter(READERS)
        return {
            kind: [
                {"type": name, "description": f"{name} reads to learn of {kind} {name}."}
                for name in (next(names) for _ in range(number))
            ]
            for kind, number in counts.items()
        }
    seen = shown(body)
    method = "alone"
    if seen.roles:
        method = "readers" if any(role.startswith("Reader") for role in seen.roles) else "objective"
    vote = "1" if preferred(method, (seen.text_1, seen.text_2)) == seen.text_1 else "2"
    if not seen.roles:
        answer = {"reason": "I say so.", "vote": vote}
        if not has_confidence((seen.text_1, seen.text_2)):
            return answer
        return with_tokens(answer, lambda _: -0.1)
    return with_tokens(entries(seen, lambda *_: vote), lambda _: -0.1)


@pytest.mark.slow
def test_correlations_are_those_of_the_scripted_votes(data_dir: Path, tmp_path: Path) -> None:
    everything = released_pairs(data_dir / "drpe" / "cnn_human.json")
    assert len(everything) == 81
    kept = [everything[index * len(everything) // LIMIT] for index in range(LIMIT)]
    human = [float(first) for _, _, first in kept]

    def pearson(method: str) -> float:
        scores = [float(preferred(method, (one, other)) == one) for one, other, _ in kept]
        return correlation(scores, human)

    options = ("--model", "a", "--limit", str(LIMIT), "--ablations")
    finished, server = reproduce_with(scripted, "drpe", data_dir, tmp_path / "out", *options)
    assert finished.code == 0, finished.err
    check_outputs(tmp_path / "out", "drpe")
    assert 0 < sum(has_confidence((one, other)) for one, other, _ in kept) < LIMIT
    (row, *printed) = read_csv(tmp_path / "out" / "table-1.csv")
    assert row["Metrics"] == "CNN, a"
    expected = {"LLM": "alone", "MDRPE": "objective", "DRPE": "readers"}
    for column, method in expected.items():
        assert float(row[column]) == pytest.approx(pearson(method), abs=1e-9), column
        assert row[f"{column} (judged)"] == str(LIMIT), column
    (shown_row,) = re.findall(
        r"^\| CNN, a \|.*$", (tmp_path / "out" / "table-1.md").read_text(), re.MULTILINE
    )
    marks = ["\\*" in cell for cell in shown_row.strip("| ").split(" | ")]
    # The score of equation 4 is shown where each vote has a confidence.
    assert marks == [False, False, False, True, True]
    assert (row["LLM (paper)"], row["BertScore (paper)"]) == ("0.58", "0.55")
    assert [one["DRPE"] for one in printed] == ["0.9", "0.87"]
    methods = {
        (one["Model"], one["Method"]): one for one in read_csv(tmp_path / "out" / "table-1-methods.csv")
    }
    for count, method in ((0, "objective"), (2, "readers"), (4, "readers"), (5, "readers"), (6, "readers")):
        assert float(methods["CNN, a", f"roles k={count}"]["Pearson"]) == pytest.approx(
            pearson(method), abs=1e-9
        )
    right = fmean((preferred("readers", (one, other)) == one) == first for one, other, first in kept)
    found = methods["CNN, a", "roles k=5"]
    assert float(found["Accuracy"]) == pytest.approx(right)
    # The scripted votes do not depend on the order.
    assert (float(found["First shown"]), float(found["Orders differ"])) == (0.5, 0)
    longer = fmean(
        len(preferred("readers", (one, other))) == max(len(one), len(other)) for one, other, _ in kept
    )
    assert float(found["Longer"]) == pytest.approx(longer)
    assert {"rouge-l", "longer", "meteor"} <= {name for model, name in methods if model == "CNN"}
    assert row["BertScore"] == methods["CNN", "bertscore"]["Pearson"] != ""
    assert [method for model, method in methods if model == "CNN, a, manual"][:1] == ["roles k=2"]
    cautioned = {method for model, method in methods if model == "CNN, a, cautioned"}
    assert {"llm", "fixed-roles", "roles k=5"} <= cautioned
    counts = {count: methods["CNN, a", f"roles k={count}"]["Roles"] for count in (0, 2, 4, 5, 6)}
    # Clustering takes the like readers for one.
    assert counts == {0: "3", 2: "5", 4: "5 of 7", 5: "5 of 8", 6: "5 of 9"}
    notes = (tmp_path / "out" / "table-1-methods.md").read_text()
    assert f"CNN, a: {LIMIT} pairs: 5 of 6 roles were generated." in notes
    assert found["Williams: baseline"] in {name for model, name in methods if model == "CNN"} | {"llm"}
    assert found["Williams: n"] == str(LIMIT)
    asked = {shown(body).roles for body in server.bodies if "[BEGIN text 1 " in prompt_of(body)} - {()}
    # DRPE and ManualDRPE have the same objective roles.
    assert len({roles for roles in asked if len(roles) == 3}) == 1
    (objective,) = (roles for roles in asked if len(roles) == 3)
    assert all(set(objective) <= set(roles) for roles in asked)
    prompts = [prompt_of(body) for body in server.bodies]
    caution = [prompt for prompt in prompts if "nor their length is a reason" in prompt]
    assert len(caution) == 2 * 3 * LIMIT
    assert set(server.calls.values()) == {1}


@pytest.mark.slow
def test_without_a_model_the_study_and_the_metrics_are_reproduced(data_dir: Path, tmp_path: Path) -> None:
    finished = reproduce("drpe", data_dir, tmp_path, "--offline", "--limit", str(LIMIT))
    assert finished.code == 0, finished.err
    check_outputs(tmp_path, "drpe", offline=True)
    study = {row["Figure"]: row for row in read_csv(tmp_path / "section-4-1.csv")}
    assert study["pairs"]["best"] == "81"
    shares = [study[f"{name} chosen by two or more, in percent"]["best"] for name in ("brio", "t0", "gpt3")]
    assert list(map(float, shares)) == pytest.approx([36, 8, 58])
    methods = {row["Method"]: row for row in read_csv(tmp_path / "table-1-methods.csv")}
    pairs = released_pairs(data_dir / "drpe" / "cnn_human.json")
    kept = [pairs[index * len(pairs) // LIMIT] for index in range(LIMIT)]
    longer = fmean((len(one) > len(other)) == first for one, other, first in kept)
    assert float(methods["longer"]["Accuracy"]) == pytest.approx(longer)
    assert methods["meteor"]["Pairs"] == str(LIMIT)
    bertscore = read_csv(tmp_path / "table-1.csv")[0]["BertScore"]
    assert -1 < float(bertscore) == float(methods["bertscore"]["Pearson"]) < 1


@pytest.mark.slow
def test_xsum_is_reproduced_where_its_study_is_and_one_order_is_shown_where_asked(
    data_dir: Path, tmp_path: Path
) -> None:
    place = tmp_path / "data" / "drpe"
    place.mkdir(parents=True)
    source = (data_dir / "drpe" / "cnn_human.json").read_text()
    (place / "cnn_human.json").write_text(source)
    articles = dict(list(json.loads(source).items())[50:])
    (place / "bbc_human.json").write_text(json.dumps(articles))
    everything = released_pairs(place / "bbc_human.json")
    kept = [everything[index * len(everything) // LIMIT] for index in range(LIMIT)]
    options = ("--model", "a", "--limit", str(LIMIT), "--single-order")
    finished, server = reproduce_with(scripted, "drpe", place, tmp_path / "out", *options)
    assert finished.code == 0, finished.err
    rows = {row["Metrics"]: row for row in read_csv(tmp_path / "out" / "table-1.csv")}
    assert list(rows) == ["CNN, a", "XSum, a", "CNN (paper)", "XSum (paper)"]
    human = [float(first) for _, _, first in kept]
    scores = [float(preferred("readers", (one, other)) == one) for one, other, _ in kept]
    assert float(rows["XSum, a"]["DRPE"]) == pytest.approx(correlation(scores, human), abs=1e-9)
    assert rows["XSum, a"]["DRPE (paper)"] == "0.87"
    study = {row["Figure"]: row for row in read_csv(tmp_path / "out" / "section-4-1-xsum.csv")}
    assert study["pairs"]["best"] == str(len(everything))
    assert (tmp_path / "out" / "figure-7-xsum.png").exists()
    assert "Table 1 and Figure 7, XSum" not in (tmp_path / "out" / "README.md").read_text()
    # One vote of each method, and no run with a caution, which the paper has not.
    votes = [body for body in server.bodies if "[BEGIN text 1 " in prompt_of(body)]
    shared = {json.dumps(body, sort_keys=True) for body in votes}
    assert len(votes) == len(shared)
    assert len([body for body in votes if not shown(body).roles]) <= 2 * LIMIT
    assert not [body for body in votes if "nor their length is a reason" in prompt_of(body)]
