"""Settings of the command line for every row: judges and their models."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.platform import environment
from dramaturg.cli.terminal import echo

MODEL_FILE = ".gguf"
"""The ending of a model that is a file."""


@dataclass(frozen=True)
class Overrides:
    """Settings of the command line; absent ones keep the row's value."""

    judges: Sequence[tuple[str, str]] = ()
    """(role, judge) pairs. They replace the row's judges of the same roles; several of one are a panel."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The model of every judge of a role, by role."""
    model: str = ""
    """The model of all other judges."""
    mechanism: scripts_pb2.Mechanism.ValueType = scripts_pb2.MECHANISM_UNSPECIFIED
    """The judging mechanism."""
    gold_answer: scripts_pb2.GoldAnswerSource.ValueType = scripts_pb2.GOLD_ANSWER_SOURCE_UNSPECIFIED
    """Where the gold answer comes from. If specified, a gold answer that the row has is left out."""

    @classmethod
    def parse(cls, judges: Iterable[str], models: Iterable[str]) -> Overrides:
        """Reads ROLE=NAME and ROLE=MODEL or MODEL, as the command line has them.

        Raises:
            ValueError: One of them is malformed, or a model is set twice.
        """
        pairs = parse_judges(judges)
        by_role = parse_models("--judge-model", models)
        model = by_role.pop("", "")
        return cls(pairs, by_role, model)

    def apply(self, request: EvaluateScriptsRequest) -> None:
        """Sets them in a request."""
        set_judges(request.judges, self.judges, self.models)
        if self.model:
            request.options.model = self.model
        if self.mechanism:
            request.mechanism = self.mechanism
        if self.gold_answer:
            request.gold_answer_source = self.gold_answer
            request.ClearField("gold_answer")


def parse_judges(texts: Iterable[str]) -> Sequence[tuple[str, str]]:
    """Reads ROLE=NAME, as the command line has it, into (role, judge) pairs.

    Raises:
        ValueError: One of them is malformed.
    """
    pairs = []
    for text in texts:
        role, equals, name = text.partition("=")
        if not (role and equals and name):
            raise ValueError(f"--judge {text!r} is not of the form ROLE=NAME")
        pairs.append((role, name))
    return tuple(pairs)


def parse_models(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Reads ROLE=MODEL or MODEL into models by role; the empty role: all others.

    Args:
        option: The option's name, for messages.
        texts: What it was given.

    Raises:
        ValueError: One of them is malformed, or a model is set twice.
    """
    by_role: dict[str, str] = {}
    for text in texts:
        role, equals, model = text.partition("=")
        if not equals:
            role, model = "", text
        if not model or (equals and not role):
            raise ValueError(f"{option} {text!r} is not of the form ROLE=MODEL or MODEL")
        if role in by_role:
            raise ValueError(f"{option} sets the model {f'of {role}' if role else 'of all'} twice")
        by_role[role] = model
    return by_role


def model_files(context: typer.Context, texts: list[str] | None) -> list[str] | None:
    """Replaces files among ROLE=MODEL or MODEL by models of the generation service that the command starts.

    Raises:
        typer.BadParameter: There is no such file, or the command starts no services.
    """
    return [_served(context, text) if text.endswith(MODEL_FILE) else text for text in texts or ()] or texts


def _served(context: typer.Context, text: str) -> str:
    role, equals, name = text.rpartition("=")
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {name}")
    if context.params.get("target"):
        raise typer.BadParameter(f"{name} is served by services that are started here: leave out --target")
    provider = re.sub("[^a-z0-9]", "", path.stem.lower())[:40] or "file"
    prefix = f"DRAMATURG_GENERATION_PROVIDERS__{provider.upper()}__"
    if f"{prefix}PATH" not in os.environ:
        context.with_resource(environment({f"{prefix}KIND": "file", f"{prefix}PATH": str(path)}))
        size = path.stat().st_size / 2**30
        echo(
            f"{path.name}: loads in a process of its own, {size:.1f} GiB of memory and its context", err=True
        )
    return f"{role}{equals}{provider}/{path.stem}"


def models_of_roles(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Reads ROLE=MODEL into models by role. Arguments and errors are those of ``parse_models``."""
    by_role = parse_models(option, texts)
    if "" in by_role:
        raise ValueError(f"{option} {by_role['']!r} is not of the form ROLE=MODEL")
    return by_role


def set_judges(
    selections: MutableSequence[JudgeSelection],
    judges: Sequence[tuple[str, str]],
    models: Mapping[str, str],
) -> None:
    """Puts judges in the place of a request's judges of the same roles, and sets the models of roles.

    Args:
        selections: The request's ``judges``; changed.
        judges: (role, judge) pairs; several of one role are a panel.
        models: The model of every judge of a role, by role.
    """
    named = {role for role, _ in judges}
    chosen = [selection for selection in selections if selection.role not in named]
    chosen += [JudgeSelection(role=role, judge=name) for role, name in judges]
    for role, model in models.items():
        mine = [selection for selection in chosen if selection.role == role]
        if not mine:
            mine = [JudgeSelection(role=role)]
            chosen += mine
        for selection in mine:
            selection.model = model
    del selections[:]
    selections.extend(chosen)


def set_shadow_wait(request: Any, seconds: float) -> None:
    """Sets how long a result waits for shadows. 0 leaves the row's value."""
    if seconds:
        request.shadow_wait.FromNanoseconds(round(seconds * 1e9))
