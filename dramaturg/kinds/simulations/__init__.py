"""The results of simulations (SimulBench): one row for each dialogue."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulatedDialogue
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.kind import ResultKind, set_abstention, set_provenance

NO_TURN = "none"
"""The name of the challenging turn of a dialogue without one."""
REDIRECTED = "repeated or goodbye: asked for once more"
"""The name of requests after which the user agent was asked again."""


def _rows(result: SimulatedDialogue, texts: bool) -> Iterator[RunResult]:
    del texts
    row = RunResult(measure="challenging_turn", judge=result.challenge_judge)
    if result.challenge_judge:
        row.role = "challenge-judge"
    set_provenance(row, result.challenge_provenance)
    if result.HasField("challenging_turn"):
        row.value = result.challenging_turn
        row.label = f"{result.turn_count} turns"
    else:
        set_abstention(row, result.challenge_abstain_reason)
    yield row


SIMULATIONS = ResultKind(
    name="simulation",
    json_member="utterances",
    rows=_rows,
    ranking="",
    ranked=False,
)
