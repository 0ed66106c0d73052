"""The results of pairs of texts (DRPE): two rows for each comparison and for the vote by each criterion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_ABSTAIN,
    PREFERENCE_FIRST,
    PREFERENCE_SECOND,
    PREFERENCE_TIE,
    PREFERENCE_UNSPECIFIED,
    ROLE_ORIGIN_CRITERION,
    ComparePairResponse,
)
from dramaturg.results.kind import Comparability, Judgement, ResultKind, comparison_rows

SEED_TAG = "presentation-seed"
"""The tag that records the seed by which texts were put in order."""
LINE_TAG = "line"
"""The tag of the row's line. Results of one pair with several numbers of roles have the same line."""
COUNT_TAG = "k"
"""The tag of the requested number of subjective roles, if the command line states it."""

BY_CRITERION = "criterion "
"""Begins the method that is the vote by one criterion of a rubric; its id follows."""

_FIRST_SHARES = {PREFERENCE_FIRST: 1.0, PREFERENCE_TIE: 0.5, PREFERENCE_SECOND: 0.0}


def comparisons(result: PairResult) -> Iterator[PairComparison]:
    """The comparisons of a pair, each followed by the votes of its roles that are criteria."""
    for one in result.comparisons:
        yield one
        for vote in one.comparison.votes:
            if vote.role.origin == ROLE_ORIGIN_CRITERION:
                yield PairComparison(
                    method=BY_CRITERION + vote.role.type,
                    judge=one.judge,
                    comparison=ComparePairResponse(
                        votes=[vote],
                        preference=vote.preference,
                        first_vote_share=_FIRST_SHARES.get(vote.preference),
                        provenance=one.comparison.provenance,
                    ),
                )


def _rows(result: PairResult, texts: bool) -> Iterator[RunResult]:
    del texts
    models = result.first_model, result.second_model
    # A sweep compares the same texts once for each number of roles: these are setups of their own.
    count = result.tags.get(COUNT_TAG, "")
    for compared in comparisons(result):
        swept = f" k={count}" if count and compared.method == "roles" else ""
        yield from comparison_rows(
            f"win/{compared.method}{swept}", models, compared.judge, compared.comparison
        )


def _judgements(result: PairResult, rows: Iterable[RunResult]) -> Iterator[Judgement]:
    """One judgement for each comparison, which has two rows: whether it prefers the same as people."""
    del rows
    if not result.human_preference:
        return
    models = f"{result.first_model} and {result.second_model}"
    for one in result.comparisons:
        preferred = one.comparison.preference
        abstained = preferred in (PREFERENCE_UNSPECIFIED, PREFERENCE_ABSTAIN)
        yield Judgement(
            sample=result.id,
            subject=models,
            model=models,
            aspect=f"{one.method} by {one.judge}" if one.judge else one.method,
            value=None if abstained else preferred == result.human_preference,
        )


PAIRS = ResultKind(
    name="pair",
    json_member="longer",
    rows=_rows,
    ranking="By the share of comparisons won, judged by roles; a tie counts one half.",
    primary_measure="win/roles",
    setup_prefix="win/roles k=",
    comparability=Comparability("preferred as people do", _judgements),
)
