"""The results of pairs of texts (DRPE): two rows for each comparison."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.kind import ResultKind
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


PAIRS = ResultKind(
    name="pair",
    json_member="longer",
    rows=_rows,
    ranking="By the share of comparisons won, judged by roles; a tie counts one half.",
    primary_measure="win/roles",
    setup_prefix="win/roles k=",
)
