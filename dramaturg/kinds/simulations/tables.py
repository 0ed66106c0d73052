"""Figures of simulated dialogues (SimulBench, sections 2.3 and 2.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.evaluation.v1.summary_pb2 import SimulationFigures, Summary
from dramaturg.kinds.simulations import NO_TURN, REDIRECTED
from dramaturg.tables.model import Section, Table, columns, count


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    whole = next((one for one in summary.simulations.figures if not one.tags), SimulationFigures())
    scripts = sum(one.count for one in whole.scripts)
    known = sum(whole.dialogues_by_challenging_turn.values())
    hard = known - whole.dialogues_by_challenging_turn.get(0, 0)
    return (
        f"{whole.dialogue_count:,} dialogues give {scripts:,} test scripts; "
        f"{hard:,} of {known:,} judged dialogues have a challenging turn."
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Counts of dialogues, requests and test scripts, by group."""
    for figures in summary.simulations.figures:
        group = ", ".join(f"{name} {value}" for name, value in sorted(figures.tags.items()))
        yield Section(f"Dialogues, {group}" if group else "Dialogues", list(_tables(figures)))


def _tables(figures: SimulationFigures) -> Iterator[Table]:
    turns = [(str(turn or NO_TURN), n) for turn, n in sorted(figures.dialogues_by_challenging_turn.items())]
    abstained = sorted(figures.challenge_abstentions_by_reason.items())
    scripts = [(f"{one.subset} {one.simulation_kind}".strip(), one.count) for one in figures.scripts]
    whole = [(str(turn), number) for turn, number in sorted(figures.dialogues_by_turn_count.items())]
    yield _table("Complete turns", "turns", "dialogues", whole)
    yield _table("First challenging turn", "turn", "dialogues", [*turns, *abstained])
    yield _table("Test scripts", "kind", "scripts", scripts)
    if figures.requests_by_strategy:
        yield _table("Strategies of the user", "strategy", "requests", figures.requests_by_strategy.items())
    if figures.redirected_request_count:
        redirected = [(REDIRECTED, figures.redirected_request_count)]
        yield _table("Requests of the user", "request", "requests", redirected)
    if figures.dialogues_by_early_end:
        yield _table("Early ends", "reason", "dialogues", figures.dialogues_by_early_end.items())


def _table(caption: str, name: str, noun: str, counts: Iterable[tuple[str, int]]) -> Table:
    return Table(caption, columns(name, figures=(noun,)), ([label, count(n)] for label, n in counts))
