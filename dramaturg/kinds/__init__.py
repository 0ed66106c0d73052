"""The registry of the kinds of evaluation whose samples have results.

A kind is a package here, whose modules are loaded when they are used, so that the registry costs a command
line nothing:

- ``dramaturg.kinds.<name>``: ``<NAME>``, how results are flattened and ranked.
- ``dramaturg.kinds.<name>.view``: ``view``, how the report shows a sample.
- ``dramaturg.kinds.<name>.tables``: ``lead``, the sentence that opens the report, and ``sections``, the
  tables and charts of its summary.
- ``dramaturg.kinds.<name>.command``: its options, and the command that evaluates a file of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dramaturg.report.sample_view import SampleView
    from dramaturg.results.kind import ResultKind


@dataclass(frozen=True)
class Kind:
    """A kind of evaluation."""

    name: str
    """The member of ``RunSpec.evaluation``, and the name of its commands."""
    by_file: bool = True
    """Whether ``dramaturg eval`` evaluates a file of it."""
    request: str = ""
    """The name of its request. Empty: Evaluate<Name>Request."""

    @cached_property
    def results(self) -> ResultKind:
        """Its results."""
        found: ResultKind = getattr(self._module(), self.name.upper())
        return found

    @cached_property
    def view(self) -> Callable[[int, Any], SampleView]:
        """Makes the view of the report from the index of a sample and its result."""
        found: Callable[[int, Any], SampleView] = self._module("view").view
        return found

    @cached_property
    def tables(self) -> Any:
        """The module of its tables."""
        return self._module("tables")

    @cached_property
    def command(self) -> Any:
        """The module of its command."""
        return self._module("command")

    def _module(self, name: str = "") -> Any:
        return import_module(f"{__name__}.{self.name}{name and '.'}{name}")


KINDS: Sequence[Kind] = (
    Kind("scripts"),
    Kind("decisions"),
    Kind("dialogues"),
    Kind("pairs"),
    Kind("graphs"),
    Kind("simulations", by_file=False, request="SimulateDialogueRequest"),
    Kind("scenarios", by_file=False, request="WriteScenariosRequest"),
    Kind("texts"),
)
"""All kinds, in the order of the help."""

FILE_KINDS = {kind.name: kind for kind in KINDS if kind.by_file}
"""The kinds whose rows are evaluated as they are, by name."""


@lru_cache(maxsize=32)  # for every result of an evaluation
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
