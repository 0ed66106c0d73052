"""The results of dialogues (SimulBench): rows for ratings, comparisons and scores of replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, ReplyRating
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.kind import (
    Comparability,
    JudgeAnswer,
    Judgement,
    ResultKind,
    comparison_rows,
    row_answers,
    row_judgement,
    set_abstention,
    set_provenance,
)

LOWEST, HIGHEST = 1.0, 10.0
"""The ends of the scale of ratings."""
ACED = " (aced)"
"""Ends the measure of ratings on a script that every model aces: they are in no mean rating."""
LAST_ONLY, FIRST, SUBSEQUENT = "last_only", "first_challenge", "subsequent_challenge"
"""The kinds of test script (section 4.2.2)."""
STATELESS, STATEFUL = "stateless", "stateful"
"""The kinds of simulation (section 4.2.1)."""
SUBSET_NAMES = {
    dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY: LAST_ONLY,
    dialogues_pb2.SCRIPT_SUBSET_FIRST_CHALLENGE: FIRST,
    dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE: SUBSEQUENT,
}
"""The kinds of script as tags and tables name them."""
KIND_NAMES = {
    dialogue_pb2.SIMULATION_KIND_STATELESS: STATELESS,
    dialogue_pb2.SIMULATION_KIND_STATEFUL: STATEFUL,
}
"""The kinds of simulation as tags and tables name them."""

_RATING_ROLE = "rating-judge"


def reply_ratings(ratings: Iterable[ReplyRating]) -> dict[str, float | None]:
    """The rating of each model's reply to one script: the mean over those of its judges that rated it.

    None: every judge abstained.
    """
    values: dict[str, list[float]] = {}
    for rated in ratings:
        mine = values.setdefault(rated.model, [])
        if rated.rating.HasField("value"):
            mine.append(rated.rating.value)
    return {model: fmean(mine) if mine else None for model, mine in values.items()}


def is_aced(ratings: Mapping[str, float | None]) -> bool:
    """Whether every one of two models or more has the highest rating on a script.

    Such a script tells no models apart; the paper leaves it out (section 2.4).

    Args:
        ratings: The rating of each model's reply.
    """
    return len(ratings) > 1 and all(rating == HIGHEST for rating in ratings.values())


def is_panel_mean(row: RunResult) -> bool:
    """Whether a row is the mean of a panel's ratings, which are rows of their own."""
    return row.role == _RATING_ROLE and not row.judge


def _rows(result: DialogueResult, texts: bool) -> Iterator[RunResult]:
    del texts
    ratings = reply_ratings(result.ratings)
    failures = {reply.model: reply.failure_reason for reply in result.replies}
    for row in _judgements(result, ratings):
        if not row.abstain_reason:
            row.failure_reason = failures.get(row.model, verdict_pb2.ABSTAIN_REASON_UNSPECIFIED)
        yield row


def _judgements(result: DialogueResult, ratings: Mapping[str, float | None]) -> Iterator[RunResult]:
    aced = ACED if is_aced(ratings) else ""
    for model, rating in ratings.items():
        panel = [rated for rated in result.ratings if rated.model == model]
        if len(panel) == 1:
            yield _rating(panel[0], f"rating{aced}")
            continue
        row = RunResult(model=model, measure=f"rating{aced}", role=_RATING_ROLE)
        if rating is None:
            set_abstention(row, panel[0].rating.abstain_reason)
        else:
            row.value = rating
        yield row
        yield from (_rating(rated, f"rating/{rated.judge}{aced}") for rated in panel)
    for compared in result.comparisons:
        models = compared.first_model, compared.second_model
        yield from comparison_rows("win", models, compared.judge, compared.comparison)
    for scored in result.scores:
        row = RunResult(
            model=scored.model,
            measure=f"score/{scored.attribute}" if scored.attribute else "score",
            role="text-scorer",
            judge=scored.judge,
        )
        set_provenance(row, scored.provenance)
        if scored.score.HasField("value"):
            row.value = scored.score.value
        else:
            set_abstention(row, scored.score.abstain_reason)
        yield row


def _rating(rated: ReplyRating, measure: str) -> RunResult:
    rating = rated.rating
    row = RunResult(
        model=rated.model,
        measure=measure,
        rationale=rating.rationale,
        role=_RATING_ROLE,
        judge=rated.judge,
    )
    set_provenance(row, rating.provenance)
    if rating.HasField("measured_confidence"):
        row.measured_confidence = rating.measured_confidence
    if rating.HasField("value"):
        row.value = rating.value
    else:
        set_abstention(row, rating.abstain_reason)
    return row


def _compared(result: DialogueResult, rows: Iterable[RunResult]) -> Iterator[Judgement]:
    for row in rows:
        if row.role == _RATING_ROLE and not is_panel_mean(row):
            yield row_judgement(result.script.id, row.model, row.judge, row)


def _answers(result: DialogueResult, rows: Iterable[RunResult]) -> Iterator[JudgeAnswer]:
    # No judge is asked about a refusal.
    refused = {
        reply.model for reply in result.replies if reply.failure_reason == verdict_pb2.ABSTAIN_REASON_REFUSED
    }
    yield from row_answers(result, (row for row in rows if not refused & {row.model, row.label}))


DIALOGUES = ResultKind(
    name="dialogue",
    json_member="script",
    rows=_rows,
    ranking="By the mean rating, from 1 to 10.",
    primary_measure="rating",
    answers=_answers,
    comparability=Comparability("rating", _compared, scale=(1.0, 10.0), shares=False),
)
