"""Judges of known quality: whether the figures find it, and their intervals cover it at their rate.

A small part runs through everything, from a server of the OpenAI protocol to ``labels align verdicts``. The
repetitions draw the same judge's answers and give them to the statistics alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dramaturg.api.alignment.v1 import accuracy_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from services.alignment.accuracy.confusion import Outcome
from services.alignment.accuracy.metrics import policy_figures
from services.alignment.bootstrap import Resampling
from tests.end_to_end.test_model import configure
from tests.support.command_line import dramaturg
from tests.support.openai_server import OpenAIServer
from tests.support.planted import PLANTED, PlantedJudge, Rates

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REPETITIONS = 500
SCRIPTS = 200
"""As many as ABSEval had people label (section 4.2)."""
LABELS = {True: "PASS", False: "FAIL", None: ""}


async def test_the_whole_path_finds_what_was_planted(tmp_path: Path) -> None:
    judge = PlantedJudge(seed=8)
    items = [(f"t{task}", f"c{candidate}") for task in range(8) for candidate in range(4)]
    tasks = [
        {
            "task": {"id": task, "goal": f"Make tea number {task}", "constraints": ["without a kettle"]},
            "candidates": [
                {"id": one, "model": "m", "script": {"steps": [{"text": f"Mark {task}/{one}."}]}}
                for name, one in items
                if name == task
            ],
        }
        for task in dict.fromkeys(task for task, _ in items)
    ]
    rows, labels = tmp_path / "tasks.jsonl", tmp_path / "labels.jsonl"
    rows.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    said = [
        {
            "item": f"{task}/{one}",
            "criterion": name,
            "annotator": "truth",
            "label": LABELS[judge.truth(f"{task}/{one}", name)],
        }
        for task, one in items
        for name in PLANTED
    ]
    labels.write_text("".join(json.dumps(row) + "\n" for row in said), encoding="utf-8")
    async with OpenAIServer(judge.respond) as server:
        configure(server, tmp_path / "home")
        environment = {"DRAMATURG_CONFIG": str(tmp_path / "home" / "dramaturg.toml")}
        evaluated = await dramaturg(
            *("eval", "--kind", "scripts", rows, "--json", "--set", "mechanism=single-judge"),
            *("--out", tmp_path / "out"),
            environment=environment,
        )
    assert evaluated.code == 0, evaluated.err
    found = await dramaturg(
        "labels", "align", "verdicts", tmp_path / "out", "--labels", labels, "--json", "--resamples", "200"
    )
    assert found.code == 0, found.err
    groups = {group["criterion"]: group for group in found.json["groups"]}
    for criterion in PLANTED:
        verdicts = [
            (judge.truth(item, criterion), judge.verdict(item, criterion)) for item in map("/".join, items)
        ]
        answered = [(truth, verdict) for truth, verdict in verdicts if verdict is not None]
        hits = sum(truth == verdict for truth, verdict in answered)
        assert (groups[criterion]["items"], groups[criterion]["answered"]) == (32, len(answered))
        policies = groups[criterion]["policies"]
        assert policies["excluded"]["accuracy"] == pytest.approx(hits / len(answered))
        assert policies["worst-case"]["accuracy"] == pytest.approx(hits / 32)
        faults = [verdict for truth, verdict in answered if not truth]
        recall = policies["excluded"]["labels"]["FAIL"]["recall"]
        assert recall == pytest.approx(faults.count(False) / len(faults))
    pooled = groups[""]["policies"]["excluded"]
    truth = float(np.mean([rates.accuracy for rates in PLANTED.values()]))
    assert pooled["accuracy_interval"][0] < truth < pooled["accuracy_interval"][1]


def drawn(rates: Rates, generator: np.random.Generator) -> Counter[Outcome]:
    """What the planted judge says of the scripts, as the server would draw it: each for itself."""
    outcomes: Counter[Outcome] = Counter()
    good = generator.random(SCRIPTS) >= rates.prevalence
    right = generator.random(SCRIPTS) < np.where(good, rates.specificity, rates.sensitivity)
    silent = generator.random(SCRIPTS) < rates.abstention
    for truth, hit, nothing in zip(good.tolist(), right.tolist(), silent.tolist(), strict=True):
        verdict = None if nothing else truth == hit
        outcomes[Outcome(LABELS[truth], LABELS[verdict], "", "")] += 1
    return outcomes


def truths(rates: Rates) -> dict[str, float]:
    """The figures of infinitely many scripts."""
    table = rates.table
    predicted = {label: table[True, label] + table[False, label] for label in (True, False)}
    gold = {True: 1 - rates.prevalence, False: rates.prevalence}
    expected = sum(predicted[label] * gold[label] for label in (True, False))
    f1 = [2 * table[label, label] / (predicted[label] + gold[label]) for label in (True, False)]
    return {
        "accuracy": rates.accuracy,
        "sensitivity": rates.sensitivity,
        "specificity": rates.specificity,
        "precision": table[False, False] / predicted[False],
        "balanced_accuracy": (rates.sensitivity + rates.specificity) / 2,
        "macro_f1": sum(f1) / 2,
        "cohen_kappa": (rates.accuracy - expected) / (1 - expected),
        "mean_squared_error": 1 - rates.accuracy,
    }


def named(found: accuracy_pb2.PolicyFigures) -> Iterator[tuple[str, Estimate]]:
    failing, passing = found.labels
    yield "accuracy", found.accuracy
    yield "sensitivity", failing.recall
    yield "specificity", passing.recall
    yield "precision", failing.precision
    yield "balanced_accuracy", found.balanced_accuracy
    yield "macro_f1", found.macro_f1
    yield "cohen_kappa", found.cohen_kappa
    yield "mean_squared_error", found.mean_squared_error


def test_intervals_cover_the_planted_rates() -> None:
    generator = np.random.default_rng(2024)
    covered: Counter[str] = Counter()
    for repetition in range(REPETITIONS):
        for rates in PLANTED.values():
            resampling = Resampling(500, repetition, 0.95, lambda: None)
            excluded = policy_figures(drawn(rates, generator), clustered=False, resampling=resampling)[0]
            expected = truths(rates)
            for name, estimate in named(excluded):
                assert estimate.HasField("lower")
                assert estimate.HasField("upper")
                covered[name] += estimate.lower <= expected[name] <= estimate.upper
    shares = {name: count / (REPETITIONS * len(PLANTED)) for name, count in covered.items()}
    assert all(0.93 <= share <= 0.97 for share in shares.values()), shares


def test_intervals_cover_where_scripts_of_a_task_are_judged_alike() -> None:
    """50 tasks of 4 scripts; a task that misleads the judge misleads it on all four."""
    generator = np.random.default_rng(7)
    clustered = alone = 0
    for repetition in range(REPETITIONS):
        outcomes: Counter[Outcome] = Counter()
        for task in range(50):
            quality = generator.beta(4, 1)
            for _ in range(4):
                predicted = "PASS" if generator.random() < quality else "FAIL"
                outcomes[Outcome("PASS", predicted, "", str(task))] += 1
        resampling = Resampling(0, repetition, 0.95, lambda: None)
        for together in (True, False):
            found = policy_figures(outcomes, clustered=together, resampling=resampling)[0].accuracy
            if not together:
                bare: Counter[Outcome] = Counter()
                for one, count in outcomes.items():
                    bare[Outcome(one.gold, one.predicted, "", "")] += count
                found = policy_figures(bare, clustered=False, resampling=resampling)[0].accuracy
            assert found.HasField("lower")
            assert found.HasField("upper")
            inside = found.lower <= 0.8 <= found.upper
            clustered, alone = clustered + (inside and together), alone + (inside and not together)
    assert 0.93 <= clustered / REPETITIONS <= 0.97
    assert alone / REPETITIONS < 0.93
