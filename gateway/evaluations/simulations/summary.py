"""Figures of simulated dialogues (SimulBench, sections 2.3 and 2.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulatedDialogue
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import (
    SimulatedScripts,
    SimulationFigures,
    Summary,
    SummaryOptions,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import FindChallengingTurnResponse
from dramaturg.results.names import abstention_name
from dramaturg.summaries.dialogues import KIND_NAMES, SUBSET_NAMES
from gateway.evaluations.judge_comparisons import ComparedJudgement
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import KindFigures, KindSummary

MAX_EARLY_ENDS = 100
"""The most reasons of early ends that are told apart. They are text."""
OTHER = "other"
"""The further reasons."""


class SimulationsKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], SimulatedDialogue]]:
        yield {**sample.simulation.tags, **sample.tags}, sample.simulation

    def compared_judgements(self, sample: RunSample) -> Iterator[ComparedJudgement]:
        result = sample.simulation
        first = FindChallengingTurnResponse(
            turn=result.challenging_turn if result.HasField("challenging_turn") else None,
            abstain_reason=result.challenge_abstain_reason,
            provenance=result.challenge_provenance,
        )
        task = result.task.id, result.task.description
        for shadow in result.shadows:
            yield ComparedJudgement(task, "", "", "challenging-turn", first, shadow)

    def figures(self, options: SummaryOptions) -> DialogueCounts:
        del options
        return DialogueCounts()


class DialogueCounts(KindFigures):
    """Counts of dialogues and of their test scripts."""

    def __init__(self) -> None:
        self._dialogues = 0
        self._turns: Counter[int] = Counter()
        self._early_ends: Counter[str] = Counter()
        self._strategies: Counter[str] = Counter()
        self._redirected = 0
        self._challenging_turns: Counter[int] = Counter()
        self._abstentions: Counter[str] = Counter()
        self._scripts: Counter[tuple[str, str]] = Counter()

    def add(self, parts: Sequence[SimulatedDialogue]) -> None:
        for result in parts:
            self._dialogues += 1
            self._turns[result.turn_count] += 1
            if reason := result.ended_early:
                known = reason in self._early_ends or len(self._early_ends) < MAX_EARLY_ENDS
                self._early_ends[reason if known else OTHER] += 1
            self._redirected += len(result.redirected_turns)
            self._strategies.update(one.strategy for one in result.utterances if one.strategy)
            if result.HasField("challenging_turn"):
                self._challenging_turns[result.challenging_turn] += 1
            else:
                self._abstentions[abstention_name(result.challenge_abstain_reason)] += 1
            for script in result.scripts:
                kind = KIND_NAMES.get(script.task.kind, "")
                self._scripts[SUBSET_NAMES.get(script.subset, ""), kind] += 1

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        figures = SimulationFigures(
            tags=tags,
            dialogue_count=self._dialogues,
            dialogues_by_turn_count=self._turns,
            dialogues_by_early_end=self._early_ends,
            requests_by_strategy=self._strategies,
            redirected_request_count=self._redirected,
            dialogues_by_challenging_turn=self._challenging_turns,
            challenge_abstentions_by_reason=self._abstentions,
            scripts=[
                SimulatedScripts(subset=subset, simulation_kind=kind, count=count)
                for (subset, kind), count in sorted(self._scripts.items())
            ],
        )
        summary.simulations.figures.append(figures)
