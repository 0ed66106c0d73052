"""The registry of the kinds of evaluation whose samples have results.

A kind has a module of its own in each of these packages, loaded when it is used, so that the registry costs a
command line nothing:

- ``dramaturg.results.<name>``: ``<NAME>``, how results are flattened and ranked.
- ``dramaturg.report.views.<name>``: ``view``, how the report shows a sample.
- ``dramaturg.tables.<name>``: ``lead`` and ``sections``, the tables and charts of its summary.
- ``dramaturg.cli.evaluate.<name>``, unless ``Kind.command`` names another module: its options, and the
  command that evaluates a file of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dramaturg.report.views.model import SampleView
    from dramaturg.results.kind import ResultKind


@dataclass(frozen=True)
class Kind:
    """A kind of evaluation."""

    name: str
    """The member of ``RunSpec.evaluation``, and the name of its commands."""
    help: str
    """The first sentence of the help of its command."""
    command: str = ""
    """The module of its commands. Empty: it is a command of ``dramaturg eval``."""
    request: str = ""
    """The name of its request. Empty: Evaluate<Name>Request."""

    @cached_property
    def results(self) -> ResultKind:
        """Its results."""
        module = import_module(f"dramaturg.results.{self.name}")
        found: ResultKind = getattr(module, self.name.upper())
        return found

    @cached_property
    def view(self) -> Callable[[int, Any], SampleView]:
        """Makes the view of the report from the index of a sample and its result."""
        found: Callable[[int, Any], SampleView] = import_module(f"dramaturg.report.views.{self.name}").view
        return found


KINDS: Sequence[Kind] = (
    Kind("scripts", "Evaluates scripts (ABSEval): seven verdicts a candidate."),
    Kind("decisions", "Evaluates decisions: models choose between two options (Choice-75)."),
    Kind(
        "dialogues",
        "Evaluates dialogues: replies are rated from 1 to 10 and compared (SimulBench).",
    ),
    Kind(
        "pairs",
        "Evaluates pairs of texts: roles or a rubric, baselines, human labels (DRPE).",
    ),
    Kind("graphs", "Evaluates script graphs that models predict or write (proScript)."),
    Kind(
        "simulations",
        "Simulates dialogues and cuts test scripts from them (SimulBench).",
        "dramaturg.cli.simulate",
        "SimulateDialogueRequest",
    ),
    Kind(
        "scenarios",
        "Has models write scenarios for decisions, to be reviewed by people (Choice-75).",
        "dramaturg.cli.scenarios",
        "WriteScenariosRequest",
    ),
    Kind("texts", "Evaluates any texts by a rubric: criteria that pass, fail or have a scale."),
)
"""All kinds, in the order of the help."""

FILE_KINDS = {kind.name: kind for kind in KINDS if not kind.command}
"""The kinds whose rows are evaluated as they are, by name."""


def find_kind(result: str | None) -> Kind | None:
    """The kind whose results are this member of ``RunSample.result``. None: there is none."""
    return next((kind for kind in KINDS if kind.results.name == result), None)


def find_request_kind(request: str) -> Kind | None:
    """The kind of the requests of this name. None: there is none."""
    names = (kind.request or f"Evaluate{kind.name.capitalize()}Request" for kind in KINDS)
    return dict(zip(names, KINDS, strict=True)).get(request)


def find_summary_kind(summary: Any) -> Kind | None:
    """The kind of the figures of a ``Summary``. None: no sample has a result."""
    name = summary.WhichOneof("kind")
    return next((kind for kind in KINDS if kind.name == name), None)


def sample_kind(sample: Any) -> Kind | None:
    """The kind of the result of a ``RunSample``. None: the sample has no result."""
    return find_kind(sample.WhichOneof("result"))
