from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    DialogueScript,
    ModelReply,
    ReplyComparison,
    ReplyRating,
)
from dramaturg.api.evaluation.v1.summary_pb2 import DialoguesSummary, RatingFigures, Summary
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from gateway.evaluations.dialogues.ratings import (
    DialoguesAggregator,
    Rated,
    Script,
    aced_scripts,
    scores,
    task_scores,
)
from gateway.evaluations.dialogues.summary import DialoguesFigures

# SimulBench, Table 4: LastOnly, FirstChan, SubseqChan, stateless and stateful of FirstChan, Hard, All.
TABLE_4 = {
    "GPT-4-Turbo": (9.29, 8.62, 8.13, 8.45, 8.75, 8.29, 8.74),
    "GPT-4o": (9.40, 8.65, 7.57, 8.55, 8.72, 7.93, 8.59),
    "LLaMA-3-70B-Chat": (9.32, 8.13, 7.98, 7.74, 8.40, 8.03, 8.61),
    "LLaMA-3-8B-Chat": (9.03, 7.28, 7.20, 6.76, 7.64, 7.23, 8.04),
    "Qwen1.5-110B-Chat": (9.16, 8.25, 7.25, 7.92, 8.48, 7.59, 8.30),
    "Qwen1.5-7B-Chat": (8.73, 6.53, 6.60, 6.71, 6.40, 6.58, 7.55),
    "Mixtral-8x22B-Instruct-v0.1": (8.99, 7.62, 6.83, 7.75, 7.53, 7.10, 7.95),
    "Mixtral-8x7B-Instruct-v0.1": (8.39, 6.90, 6.76, 6.79, 6.98, 6.81, 7.52),
    "Mixtral-7B-Instruct-v0.3": (8.37, 6.41, 6.14, 6.76, 6.16, 6.23, 7.19),
    "LLaMA-2-70B-Chat": (8.59, 6.46, 6.40, 6.55, 6.40, 6.42, 7.40),
    "LLaMA-2-13B-Chat": (8.48, 5.84, 6.11, 6.0, 5.74, 6.02, 7.13),
    "LLaMA-2-7B-Chat": (8.37, 5.46, 6.09, 5.29, 5.58, 5.88, 7.00),
}
LAST, FIRST, LATER = (
    dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY,
    dialogues_pb2.SCRIPT_SUBSET_FIRST_CHALLENGE,
    dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE,
)
REFUSAL = Rating(abstain_reason=ABSTAIN_REASON_REFUSED)
STATELESS, STATEFUL = dialogue_pb2.SIMULATION_KIND_STATELESS, dialogue_pb2.SIMULATION_KIND_STATEFUL


def result(
    values: dict[str, float | None],
    *,
    name: str,
    subset: int = LAST,
    kind: int = STATEFUL,
    task: str = "Shell",
) -> DialogueResult:
    script = DialogueScript(
        id=name,
        task=SimulationTask(name=task, kind=dialogue_pb2.SimulationKind.ValueType(kind)),
        subset=dialogues_pb2.ScriptSubset.ValueType(subset),
    )
    return DialogueResult(
        script=script,
        replies=[ModelReply(model=model) for model in values],
        ratings=[
            ReplyRating(
                model=model,
                judge="j",
                rating=Rating(abstain_reason=ABSTAIN_REASON_REFUSED)
                if value is None
                else Rating(value=value),
            )
            for model, value in values.items()
        ],
    )


class Inline:
    """Computes in the event loop."""

    async def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


def summary_of(*results: DialogueResult, keep_aced: bool = False) -> DialoguesSummary:
    figures, summary = DialoguesFigures(keep_aced=keep_aced), Summary()
    figures.add(results)
    statistics: Any = Inline()
    figures.write({}, summary, statistics)
    return summary.dialogues


def rating(summary: DialoguesSummary, model: str) -> RatingFigures:
    """The mean rating of a model on all scripts."""
    return next(one for one in summary.ratings if (one.model, one.group) == (model, "all"))


def released(row: tuple[float, ...], model: str) -> Iterator[DialogueResult]:
    """500 scripts of the released kinds, each rated as its kind is on average."""
    last, _, later, stateless, stateful, *_ = row
    kinds = [(LAST, STATEFUL, last)] * 225 + [(LATER, STATEFUL, later)] * 182
    kinds += [(FIRST, STATELESS, stateless)] * 38 + [(FIRST, STATEFUL, stateful)] * 55
    for number, (subset, kind, value) in enumerate(kinds):
        yield result({model: value}, name=str(number), subset=subset, kind=kind)


@pytest.mark.parametrize(("model", "row"), TABLE_4.items())
def test_the_arithmetic_of_table_4(model: str, row: tuple[float, ...]) -> None:
    aggregator = DialoguesAggregator()
    for one in released(row, model):
        aggregator.add(one)
    found = {one.group: one.mean for one in scores(aggregator.kept_ratings())}
    _, first, _, _, _, hard, everything = row
    assert (found["hard"].n, found["all"].n, found["first_challenge"].n) == (275, 500, 93)
    assert found["first_challenge"].value == pytest.approx(first, abs=0.01)
    assert found["hard"].value == pytest.approx(hard, abs=0.01)
    assert found["all"].value == pytest.approx(everything, abs=0.01)
    assert found["first_challenge, stateless"].n == 38
    assert found["first_challenge, stateful"].value == pytest.approx(row[4])


def test_abstentions_are_counted_and_are_no_zeros() -> None:
    one, other = result({"a": 8, "b": None}, name="1"), result({"a": 6, "b": 4}, name="2")
    summary = summary_of(one, other)
    assert summary.abstentions_by_reason == {"REFUSED": 1}
    score = rating(summary, "b")
    assert (score.script_count, score.mean.count, score.mean.value) == (2, 1, 4)
    assert not score.mean.HasField("lower")


def test_an_unusable_reply_is_counted_once_and_not_as_the_judges() -> None:
    one = result({"a": None}, name="1")
    one.replies[0].abstain_reason = ABSTAIN_REASON_REFUSED
    summary = summary_of(one)
    (unusable,) = summary.unusable_replies
    assert (unusable.model, unusable.reason, unusable.count) == ("a", "REFUSED", 1)
    assert not summary.abstentions_by_reason
    score = rating(summary, "a")
    assert (score.mean.count, score.mean.HasField("value")) == (0, False)


def test_the_judges_of_a_panel_are_averaged() -> None:
    aggregator = DialoguesAggregator()
    one = result({"a": 8}, name="1")
    one.ratings.add(model="a", judge="k", rating=Rating(value=5))
    one.ratings.add(model="a", judge="l", rating=Rating(abstain_reason=ABSTAIN_REASON_REFUSED))
    aggregator.add(one)
    assert [rated.value for rated in aggregator.ratings] == [6.5]


def test_scripts_that_every_model_aces_are_set_aside_unless_they_are_kept() -> None:
    for keep, expected in ((False, 1), (True, 2)):
        aced, other = result({"a": 10, "b": 10}, name="1"), result({"a": 10, "b": 9}, name="2")
        summary = summary_of(aced, other, keep_aced=keep)
        assert summary.aced_script_count == 1
        assert rating(summary, "a").mean.count == expected


def test_what_one_model_aces_alone_is_no_sign_of_an_easy_script() -> None:
    easy = Script("1", "Shell", "last_only", "stateful")
    assert aced_scripts([Rated(easy, "a", 10.0)]) == frozenset()
    assert aced_scripts([Rated(easy, "a", 10.0), Rated(easy, "b", 10.0)]) == {"1"}
    assert aced_scripts([Rated(easy, "a", 10.0), Rated(easy, "b", None)]) == frozenset()


def test_tasks_are_listed_hardest_first() -> None:
    aggregator = DialoguesAggregator()
    aggregator.add(result({"a": 3, "b": 5}, name="1", task="Chess"))
    aggregator.add(result({"a": 9, "b": None}, name="2", task="Titles"))
    found = [(one.task, one.kind, one.mean.n, one.mean.value) for one in task_scores(aggregator.ratings)]
    assert found == [("Chess", "stateful", 2, 4), ("Titles", "stateful", 1, 9)]


def test_pairs_give_the_papers_table_1() -> None:
    # GPT-4-turbo against GPT-4o on the 275 hard scripts: 40.36, 35.64, 24.00, a difference of 16.36.
    outcomes = [pairs_pb.PREFERENCE_FIRST] * 111 + [pairs_pb.PREFERENCE_TIE] * 98
    outcomes += [pairs_pb.PREFERENCE_SECOND] * 66 + [pairs_pb.PREFERENCE_ABSTAIN]
    compared_replies = []
    for number, outcome in enumerate(outcomes):
        one = result({}, name=str(number), subset=FIRST)
        compared = ReplyComparison(first_model="a", second_model="b", judge="j")
        compared.comparison.preference = outcome
        one.comparisons.append(compared)
        compared_replies.append(one)
    hard = next(one for one in summary_of(*compared_replies).pairs if one.group == "hard")
    assert (hard.win_count, hard.tie_count, hard.lose_count, hard.abstained_count) == (111, 98, 66, 1)
    assert round(100 * hard.difference.value, 2) == 16.36
