"""The results of pairs of texts (DRPE): two rows for each comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.judging.v1.pair_judge_service_pb2 import PREFERENCE_ABSTAIN, PREFERENCE_UNSPECIFIED
from dramaturg.results.kind import Comparability, Judgement, ResultKind
from dramaturg.results.row_parts import comparison_rows

LINE_TAG = "line"
"""The tag of the row's line. Results of one pair with several numbers of roles have the same line."""
COUNT_TAG = "k"
"""The tag of the requested number of subjective roles, if the command line states it."""


def _rows(result: PairResult, texts: bool) -> Iterator[RunResult]:
    del texts
    models = result.first_model, result.second_model
    # A sweep compares the same texts once for each number of roles: these are setups of their own.
    count = result.tags.get(COUNT_TAG, "")
    for compared in result.comparisons:
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
