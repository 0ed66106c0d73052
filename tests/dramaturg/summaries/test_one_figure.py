"""One results file gives the same figures in ``evaluate``, in the leaderboard of a run and in the report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    DatasetManifest,
)
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.summaries import summarize_results
from dramaturg.report.page import write_report
from dramaturg.results.files import read_results
from dramaturg.results.leaderboard import leaderboard
from gateway.runs.store import open_store
from tests.support.evaluation_samples import (
    DECISIONS,
    DIALOGUES,
    GRAPHS,
)
from tests.support.runs import create, rows, sample_rows
from tests.support.stored_runs import outcome


def write(folder: Path, results: Sequence[Message]) -> Path:
    lines = (json.dumps(MessageToDict(one)) + "\n" for one in results)
    (folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def boards(folder: Path, measure: str = "") -> Iterator[Sequence[LeaderboardEntry]]:
    """The leaderboard of a run that holds these results, and that of the report."""
    samples = list(read_results(folder))
    kind = samples[0].WhichOneof("result") or ""
    store = open_store(f"sqlite:///{folder}/runs.sqlite3")
    create(store)
    store.samples.add("run", sample_rows(rows(range(len(samples)))))
    store.runs.set_manifest("run", DatasetManifest(sha256="x"))
    store.runs.change_state("run", RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    attempt = store.runs.get("run").attempt  # type: ignore[union-attr]
    store.samples.take("run", range(len(samples)), "here")
    store.attempts.finish("run", attempt, [outcome(sample) for sample in samples])
    yield leaderboard(store.results.model_sums("run"), kind, measure)
    store.close()
    if not measure:
        yield summary_of(folder).leaderboard


def summary_of(folder: Path) -> Summary:
    return asyncio.run(summarize_results(None, folder, SummaryOptions()))


def report(folder: Path) -> str:
    page = folder / "report.html"
    write_report(folder, page, summary_of(folder))
    return page.read_text(encoding="utf-8")


def test_the_mean_rating_is_one(tmp_path: Path) -> None:
    folder = write(tmp_path, DIALOGUES)
    ratings = summary_of(folder).dialogues.ratings
    scores = {one.model: one.mean for one in ratings if one.group == "all"}
    # By hand: a 6, 9 and 3.5; b 2.5 and 1; the aced script is set aside.
    assert scores["a"].value == pytest.approx(18.5 / 3)
    assert scores["b"].value == pytest.approx(3.5 / 2)
    for board in boards(folder):
        for entry in board:
            mine = scores[entry.model]
            assert (entry.mean, entry.lower, entry.upper) == (mine.value, mine.lower, mine.upper)
            assert (entry.judged_count, entry.judgement_count) == (mine.count, mine.total)
    text = report(folder)
    assert all(f"<bdi>{one.value:.2f}</bdi>" in text for one in scores.values())


def test_prompts_and_orders_are_apart(tmp_path: Path) -> None:
    folder = write(tmp_path, DECISIONS)
    accuracy = {
        f"correct/{one.prompt}" + (", swapped" if one.order == "swapped" else ""): one.accuracy.accuracy.value
        for one in summary_of(folder).decisions.figures
        if (one.format, one.level) == ("all", "all")
    }
    assert accuracy == {"correct/naive": 3 / 4, "correct/naive, swapped": 1 / 3, "correct/story": 1 / 4}
    for (entry,) in boards(folder):
        assert dict(entry.means_by_measure) == accuracy
        # The first setup ranks, by itself.
        assert (entry.mean, entry.judgement_count) == (3 / 4, 4)
    text = report(folder)
    assert "In the setup correct/naive" in text
    assert "correct/naive, swapped" in text


def test_the_mean_edit_distance_is_one(tmp_path: Path) -> None:
    folder = write(tmp_path, GRAPHS)
    (model,) = summary_of(folder).graphs.figures
    (distances,) = model.distances
    assert (distances.mean.value, distances.mean_lower_bound) == (5.5, 3.5)
    for (entry,) in boards(folder, "edit_distance"):
        found: dict[str, Any] = dict(entry.means_by_measure)
        assert entry.mean == found["edit_distance"] == distances.mean.value
        assert found["edit_distance/lower_bound"] == distances.mean_lower_bound
        assert (entry.judged_count, entry.judgement_count) == (distances.measured_count, model.graph_count)
    assert "5.50" in report(folder)
