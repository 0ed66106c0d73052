"""Counts of simulated dialogues (SimulBench)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    SimulatedDialogue,
)
from dramaturg.results.names import abstention_name
from dramaturg.summaries.dialogues import KIND_NAMES, SUBSET_NAMES
from dramaturg.summaries.samples import SampleAggregator

NO_TURN = "none"
"""How tables name a dialogue without a challenging turn."""


class SimulationsAggregator(SampleAggregator[SimulatedDialogue]):
    """The counts of simulated dialogues."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: Counter[int] = Counter()
        """Dialogues by how many whole turns they have."""
        self.ended_early: Counter[str] = Counter()
        """Dialogues that ended early, by reason."""
        self.strategies: Counter[str] = Counter()
        """The user agent's requests by strategy."""
        self.challenging_turns: Counter[str] = Counter()
        """Dialogues by their first challenging turn, or by why it is not known."""
        self.scripts: Counter[tuple[str, str]] = Counter()
        """Test scripts by kind of script and kind of simulation."""

    def add(self, result: SimulatedDialogue) -> None:
        """Counts a dialogue."""
        super().add(result)
        self.turns[result.turn_count] += 1
        if result.ended_early:
            self.ended_early[result.ended_early] += 1
        self.strategies.update(one.strategy for one in result.utterances if one.strategy)
        if result.HasField("challenging_turn"):
            self.challenging_turns[str(result.challenging_turn or NO_TURN)] += 1
        else:
            self.challenging_turns[abstention_name(result.challenge_abstain_reason)] += 1
        for script in result.scripts:
            self.scripts[SUBSET_NAMES[script.subset], KIND_NAMES.get(script.task.kind, "")] += 1

    def summary(self) -> dict[str, Any]:
        """The counts as ``--json`` prints them (documented in docs/cli.md)."""
        return {
            **super().summary(),
            "turns": {str(count): number for count, number in sorted(self.turns.items())},
            "ended_early": dict(sorted(self.ended_early.items())),
            "strategies": dict(sorted(self.strategies.items())),
            "challenging_turns": dict(sorted(self.challenging_turns.items())),
            "scripts": [
                {"subset": subset, "kind": kind, "count": count}
                for (subset, kind), count in sorted(self.scripts.items())
            ],
        }
