"""Tables of simulated dialogues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dramaturg.api.evaluation.v1.summary_pb2 import SimulationFigures, Summary
from dramaturg.cli.summaries.cells import group_name
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.results.simulations import NO_TURN, REDIRECTED


def show(console: Terminal, summary: Summary) -> None:
    """Prints counts of dialogues by turns, challenging turn and end, of strategies and of test scripts."""
    for figures in summary.simulations.figures:
        print_tables(console, *_tables(figures))


def _tables(figures: SimulationFigures) -> list[Table]:
    turns = {
        str(turn or NO_TURN): count for turn, count in sorted(figures.dialogues_by_challenging_turn.items())
    }
    abstained = dict(sorted(figures.challenge_abstentions_by_reason.items()))
    scripts = {
        ", ".join(filter(None, (one.subset, one.simulation_kind))): one.count for one in figures.scripts
    }
    title = group_name(figures.tags) if figures.tags else ""
    return [
        _table("whole turns", "dialogues", dict(sorted(figures.dialogues_by_turn_count.items())), title),
        _table("first challenging turn", "dialogues", turns | abstained, title),
        _table("ended early", "dialogues", _largest_first(figures.dialogues_by_early_end), title),
        _table("user's strategy", "requests", _largest_first(figures.requests_by_strategy), title),
        *(
            [_table("user's request", "requests", {REDIRECTED: figures.redirected_request_count}, title)]
            if figures.redirected_request_count
            else []
        ),
        _table("test scripts of", "scripts", scripts, title),
    ]


def _largest_first(counts: Mapping[str, int]) -> Mapping[str, int]:
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _table(name: str, noun: str, counts: Mapping[Any, int], title: str) -> Table:
    table = Table(name, figures=(noun,), title=title)
    for label, count in counts.items():
        table.add_row(str(label), str(count))
    return table
