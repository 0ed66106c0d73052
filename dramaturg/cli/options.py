"""Options that several commands have, each written once, and options that go together as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from dramaturg.cli.judge_selection import model_files
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo
from dramaturg.client import DEFAULT_TARGET
from dramaturg.datasets import Format
from dramaturg.service.settings import TARGET_VARIABLE


def takes_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a command of a function: a parameter that is a dataclass becomes the options of its fields.

    Each field is annotated as a parameter of a command is, and its default is the option's. In its help a
    command's own options come before these. A ``ValueError`` of a dataclass ends the command as wrong usage.
    """
    own: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if is_dataclass(group := parameter.annotation) and isinstance(group, type):
            members = list(_parameters(group))
            groups[parameter.name] = group, [one.name for one in members]
            shared += members
        else:
            own.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**given: Any) -> Any:
        for name, (group, members) in groups.items():
            try:
                given[name] = group(**{member: given.pop(member) for member in members})
            except ValueError as error:
                fail(str(error))
        return function(**given)

    parameters = [*own, *shared]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default
        )


File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="The samples: JSON Lines, JSON, CSV, TSV, Parquet or XLSX; - reads standard input.",
    ),
]
FileFormat = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="Format of FILE. Default: by its extension, else JSON or JSON Lines.",
        rich_help_panel=MORE,
    ),
]


def _target(context: typer.Context, parameter: Any, given: str | None) -> str | None:
    """The address of the gateway; says which one it is where the environment named it."""
    named = context.get_parameter_source(parameter.name)
    if given and named is not None and named.name == "ENVIRONMENT":
        echo(f"gateway: {given} ({TARGET_VARIABLE})", err=True)
    return given or None


def _kept_target(given: str) -> str:
    return given or DEFAULT_TARGET


def target_option(what: str, otherwise: str = "one in this process", **settings: Any) -> Any:
    """The option ``--target``: what is given, else the environment, else another gateway.

    Args:
        what: Whose address it is.
        otherwise: Which gateway it is where neither names one.
        settings: Further settings of ``typer.Option``.
    """
    return typer.Option(
        "--target",
        **{
            "metavar": "HOST:PORT",
            "envvar": TARGET_VARIABLE,
            "show_envvar": False,
            "callback": _target,
            "help": f"Address of {what}. Default: {TARGET_VARIABLE}, else {otherwise}.",
            **settings,
        },
    )


Target = Annotated[str | None, target_option("the gateway")]
ResultsTarget = Annotated[
    str | None, target_option("the gateway", f"one in this process, and for a run {DEFAULT_TARGET}")
]
AlignmentTarget = Annotated[str | None, target_option("a gateway or of AlignmentService")]
RunTarget = Annotated[
    str,
    target_option("the gateway", DEFAULT_TARGET, callback=_kept_target, show_default=False, is_eager=True),
]
"""The gateway of commands about what it keeps, which one in this process does not: ``dramaturg up``'s."""
LargestTaskLoss = Annotated[
    float | None,
    typer.Option(
        min=1e-9,
        help="The most that one sample is assumed to lose, for the gate. Default: the whole scale.",
        rich_help_panel=MORE,
    ),
]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge", metavar="ROLE=NAME", help="The judge of a role; several judges of one role are a panel."
    ),
]
ModelsUnderTest = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="MODEL", help="A model under test; repeatable."),
]
JudgeModels = Annotated[
    list[str] | None,
    typer.Option(
        "--judge-model",
        metavar="[ROLE=]MODEL",
        help="The model of a role's judges, or of all judges: a name, or a file in the GGUF format.",
        callback=model_files,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Folder for the results. Default: out/<time, UTC>."),
]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace", help="Replace results of another input or of other options in DIR.", rich_help_panel=MORE
    ),
]
_JSON = "Print one JSON object instead of tables."
AsJson = Annotated[bool, typer.Option("--json", help=_JSON)]
RareAsJson = Annotated[bool, typer.Option("--json", help=_JSON, rich_help_panel=MORE)]
"""The same where a command has many options."""
Concurrency = Annotated[
    int,
    typer.Option(
        min=1,
        max=256,
        help="Samples evaluated at once.",
        rich_help_panel=MORE,
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N samples.")]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        help="Timeout of one sample, in seconds.",
        rich_help_panel=MORE,
    ),
]
GroupBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TAG[,TAG...]",
        help="Also report figures by the values of a tag, or of several tags together; repeatable.",
    ),
]
ModelGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--model-group",
        metavar="MODEL=GROUP",
        help='A model\'s group, e.g. its size, for figures of scripts by "model_group"; repeatable.',
        rich_help_panel=MORE,
    ),
]
KeepAced = Annotated[
    bool,
    typer.Option(
        "--keep-aced",
        help="Include scripts that every model aces.",
        rich_help_panel=MORE,
    ),
]


MaxOutputTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        help="The most tokens of an answer, reasoning included.",
        rich_help_panel=MORE,
    ),
]
ReasoningEffort = Annotated[
    str,
    typer.Option(metavar="EFFORT", help="How much a reasoning model reasons: minimal, low, medium, high."),
]
Repeats = Annotated[
    int,
    typer.Option(
        min=0,
        max=15,
        help="Ask each judge of verdicts, ratings or pairs as often, independently; the majority or the mean "
        "counts. 0: as the row says, else once.",
        rich_help_panel=MORE,
    ),
]
