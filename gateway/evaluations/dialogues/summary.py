"""Figures of replies (SimulBench, Tables 1 to 4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import (
    AttributeFigures,
    ReplyPairFigures,
    Summary,
    SummaryOptions,
    TaskFigures,
    UnusableReplies,
)
from dramaturg.kinds.dialogues import HIGHEST, LOWEST
from dramaturg.results.means import estimate_of, mean_of
from gateway.evaluations.dialogues.ratings import (
    GROUPS,
    HARD,
    DialoguesAggregator,
    PairCount,
    Rated,
    scores,
    task_scores,
)
from gateway.evaluations.judge_comparisons import ComparedJudgement
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.evaluations.verdict_figures import OrderEffect, RepeatCounter


class DialoguesKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], DialogueResult]]:
        yield {**sample.dialogue.tags, **sample.tags}, sample.dialogue

    def compared_judgements(self, sample: RunSample) -> Iterator[ComparedJudgement]:
        result = sample.dialogue
        task = result.script.task.id, result.script.task.description
        ratings = {(one.judge, one.model): one.rating for one in result.ratings}
        comparisons = {
            (one.judge, one.first_model, one.second_model): one.comparison for one in result.comparisons
        }
        for shadow in result.shadows:
            key = shadow.shadow_of, shadow.model
            # A sample that a caller gives may have shadows of judgements that it does not have.
            if not shadow.second_model:
                if rating := ratings.get(key):
                    yield ComparedJudgement(task, "", shadow.model, "rating", rating, shadow)
            elif comparison := comparisons.get((*key, shadow.second_model)):
                models = f"{shadow.model} / {shadow.second_model}"
                yield ComparedJudgement(task, "", models, "preference", comparison, shadow)

    def figures(self, options: SummaryOptions) -> DialoguesFigures:
        return DialoguesFigures(keep_aced=options.aced_kept)


class DialoguesFigures(KindFigures):
    """Ratings, comparisons and scores of replies.

    Args:
        keep_aced: Whether scripts that every model aces stay in the ratings.
    """

    def __init__(self, *, keep_aced: bool) -> None:
        self._replies = DialoguesAggregator(keep_aced=keep_aced)
        self._orders: defaultdict[tuple[str, str, str, str], OrderEffect] = defaultdict(OrderEffect)
        self._repeats: defaultdict[tuple[str, str, str, str], RepeatCounter] = defaultdict(RepeatCounter)

    def add(self, parts: Sequence[DialogueResult]) -> None:
        for result in parts:
            self._replies.add(result)
            hard = self._replies.subset_of(result) in HARD
            for one in result.comparisons:
                for group in ("all", "hard") if hard else ("all",):
                    key = one.first_model, one.second_model, one.judge, group
                    effect = self._orders[key]
                    self._repeats[key].add(one.comparison)
                    for vote in one.comparison.votes:
                        effect.add(vote.ballots)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        replies, written = self._replies, summary.dialogues
        kept = replies.kept_ratings()
        for one in scores(kept):
            figures = written.ratings.add(
                model=one.model,
                group=one.group,
                script_count=one.scripts,
                mean=estimate_of(one.mean, one.scripts, (LOWEST, HIGHEST)),
                tags=tags,
            )
            RepeatCounter(len(one.agreements), sum(one.agreements)).write(figures)
        if tags:
            return
        written.tasks.extend(self._tasks(kept))
        written.pairs.extend(self._pairs())
        written.attributes.extend(self._attributes())
        written.unusable_replies.extend(
            UnusableReplies(model=model, reason=reason, count=count)
            for (model, reason), count in sorted(replies.unusable_replies.items())
        )
        written.abstentions_by_reason.update(replies.abstentions)
        written.aced_script_count = len(replies.aced)

    def _tasks(self, kept: Sequence[Rated]) -> Iterator[TaskFigures]:
        for group in ("all", "hard"):
            mine = [rated for rated in kept if GROUPS[group](rated.script)]
            replies = Counter((rated.script.task, rated.script.kind) for rated in mine)
            for one in task_scores(mine):
                yield TaskFigures(
                    task=one.task,
                    simulation_kind=one.kind,
                    mean=estimate_of(one.mean, replies[one.task, one.kind], (LOWEST, HIGHEST)),
                    group=group,
                )

    def _pairs(self) -> Iterator[ReplyPairFigures]:
        for key, count in self._replies.pairs().items():
            first, second, judge, group = key
            effect = self._orders[key]
            figures = ReplyPairFigures(
                first_model=first,
                second_model=second,
                judge=judge,
                group=group,
                win_count=count.win,
                tie_count=count.tie,
                lose_count=count.lose,
                abstained_count=count.abstained,
                both_orders_count=effect.both,
                inconsistent_share=effect.inconsistent_share,
                first_presented_share=effect.first_presented_share,
                win_rate=_mean(count, (1, 0, 0)),
                tie_rate=_mean(count, (0, 1, 0)),
                lose_rate=_mean(count, (0, 0, 1)),
                difference=_mean(count, (1, 0, -1), (-1.0, 1.0)),
            )
            self._repeats[key].write(figures)
            yield figures

    def _attributes(self) -> Iterator[AttributeFigures]:
        for one in self._replies.attributes.figures():
            yield AttributeFigures(
                model=one.model,
                judge=one.judge,
                attribute=one.attribute,
                mean=estimate_of(one.mean, one.replies),
                high_count=one.high,
                high_share=one.high_share,
                abstentions_by_reason=one.abstentions,
            )


def _mean(
    count: PairCount, values: tuple[int, int, int], scale: tuple[float, float] = (0.0, 1.0)
) -> Estimate:
    """The mean of the values of a win, a tie and a loss over the judged comparisons, each of a sample."""
    judged = list(chain(*map(repeat, values, (count.win, count.tie, count.lose))))
    return estimate_of(mean_of(judged, *scale), len(judged) + count.abstained, scale)
