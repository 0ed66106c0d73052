"""Commands of ``research convert``: released formats into rows of an evaluation, one command for each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest, SimulateDialogueRequest
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.tables import number, print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError, json_document, json_values
from dramaturg.graphs.files import FileError, read_rows
from dramaturg.kinds.pairs import SEED_TAG
from dramaturg.results.quantities import counted
from dramaturg.service.errors import from_rpc_error
from dramaturg.tables.model import Table, columns, percent_of
from dramaturg_research.formats import coscript as released
from dramaturg_research.formats.choice75 import (
    ALL,
    DEV,
    PAPER_COUNT,
    TRAIN,
    read_folder,
    select_rows,
)
from dramaturg_research.formats.goyal import BEST, WORST, Study, agreement_request, read_study, vote_shares
from dramaturg_research.formats.proscript import DEGREE, convert_rows
from dramaturg_research.formats.simulbench import Skipped, read_scripts, read_tasks

__all__ = ["app"]

app = typer.Typer()


@app.command()
def coscript(
    paths: Annotated[
        list[Path], typer.Argument(metavar="SRC... DST", help="CoScript files, then the file to write.")
    ],
) -> None:
    """Converts the released CoScript format (JSON array or JSON Lines).

    Each SRC holds the scripts of one model, named by the file's stem; rows of the same id and specific
    goal become the candidates of one task. Steps lose their numbers, and the tag "topic" is the row's
    category. Invalid rows are named on standard error and left out; the exit code is then 1.

    For example:

        dramaturg research convert coscript test_data.json tasks.jsonl

        dramaturg research convert coscript gpt.json llama.json qwen.json tasks.jsonl
    """
    *sources, destination = paths
    if not sources:
        raise typer.BadParameter("needs one or more SRC, then DST", param_hint="SRC... DST")
    repeated = [stem for stem, count in Counter(source.stem for source in sources).items() if count > 1]
    if repeated:
        fail(f"several files would name the same model: {', '.join(repeated)}; rename one")
    files = []
    for source in sources:
        try:
            files.append((source.stem, released.read_file(source)))
        except OSError as error:
            fail(f"{source}: {error.strerror or error}")
        except LineError as error:
            fail(str(error))
    for source, (_, rows) in zip(sources, files, strict=True):
        if not rows:
            fail(f"{source}: there are no rows")
    conversion = released.convert(files)
    write_messages(destination, conversion.requests)
    for skipped in conversion.skipped:
        echo(f"{skipped.source}: row {skipped.row}: {skipped.reason}", err=True)
    candidates = sum(len(request.candidates) for request in conversion.requests)
    echo(
        f"{len(conversion.requests)} tasks with {candidates} candidates to {destination}; "
        f"{len(conversion.skipped)} rows left out",
        err=True,
    )
    tell_next("eval", destination)
    raise typer.Exit(1 if conversion.skipped else 0)


class SplitName(StrEnum):
    """Which rows are written."""

    DEV = DEV
    TRAIN = TRAIN
    ALL = ALL


@app.command()
def choice75(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The folder of the formats.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of rows to write.")],
    split: Annotated[SplitName, typer.Option(help="Which rows are written.")] = SplitName.DEV,
    demonstrations: Annotated[
        int | None,
        typer.Option(min=0, max=50, help="Solved examples in each row. Default: 9 for dev, else 0."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Converts the released format of Choice-75 into rows of the kind "decisions".

    Each scenario becomes a row with the tags "source", "format", "split" and "level". Demonstrations are
    drawn for each format from its own train part, evenly over choices and levels; only rows of dev have
    them. Contradictory rows are named on standard error and kept as labelled; invalid rows are named and
    left out, and the exit code is then 1.

    For example:

        dramaturg research convert choice75 choice-75/ dev.jsonl

        dramaturg research convert choice75 choice-75/ all.jsonl --split all
    """
    count = PAPER_COUNT if demonstrations is None and split is SplitName.DEV else demonstrations or 0
    if count and split is not SplitName.DEV:
        fail("--demonstrations are drawn from train and require --split dev")
    try:
        reading = read_folder(source)
    except OSError as error:
        fail(f"{error.filename or source}: {error.strerror or error}")
    except ValueError as error:
        fail(f"{source}: {error}")
    rows = select_rows(reading, split, count, seed)
    write_messages(destination, rows)
    for place, text in reading.doubtful:
        echo(f"{place}: {text}; kept as it is labelled", err=True)
    for place, text in reading.skipped:
        echo(f"{place}: {text}; left out", err=True)
    for name, total in Counter(row.tags["format"] for row in rows).items():
        shown = next(len(row.demonstrations) for row in rows if row.tags["format"] == name)
        echo(f"{name}: {total} decisions with {shown} demonstrations each", err=True)
    echo(f"{len(rows)} decisions to {destination}; {len(reading.skipped)} left out", err=True)
    tell_next("eval", destination)
    raise typer.Exit(1 if reading.skipped else 0)


@app.command()
def simulbench(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A released file of scripts, or of tasks.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of rows to write.")],
    tasks: Annotated[bool, typer.Option("--tasks", help="SRC holds tasks, not test scripts.")] = False,
    overrides: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Overrides of tasks (task_specific_config.json); with --tasks."),
    ] = None,
) -> None:
    """Converts the released format of SimulBench.

    Test scripts become rows of the kind "dialogues", with the tags "subset" (last_only, first_challenge,
    subsequent_challenge) and "kind" (stateless, stateful); tasks become rows of "simulate" with the tag
    "kind". Invalid rows are named on standard error and left out; the exit code is then 1.

    For example:

        dramaturg research convert simulbench simulbench_all.jsonl scripts.jsonl

        dramaturg research convert simulbench simulbench_tasks.jsonl tasks.jsonl --tasks
    """
    if overrides is not None and not tasks:
        fail("--overrides changes tasks and requires --tasks")
    rows = _read(source)
    made: Sequence[EvaluateDialoguesRequest] | Sequence[SimulateDialogueRequest]
    skipped: Sequence[Skipped]
    if tasks:
        read = read_tasks(rows, {} if overrides is None else _read_object(overrides))
        made, skipped = read.requests, read.skipped
    else:
        scripts = read_scripts(rows)
        made, skipped = scripts.requests, scripts.skipped
    write_messages(destination, made)
    for line, reason in skipped:
        place = f"{source}: line {line}" if line else str(overrides)
        echo(f"{place}: {reason}; left out", err=True)
    for tag in ("subset", "kind"):
        counts = Counter(row.tags[tag] for row in made if tag in row.tags)
        if counts:
            listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
            echo(f"{tag}: {listed}", err=True)
    noun = "tasks" if tasks else "test scripts"
    echo(f"{len(made)} {noun} to {destination}; {len(skipped)} left out", err=True)
    tell_next(*(("research", "simulate") if tasks else ("eval",)), destination)
    raise typer.Exit(1 if any(line for line, _ in skipped) else 0)


def _read(file: Path) -> Sequence[tuple[int, Any]]:
    try:
        rows = list(json_values(file))
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    if not rows:
        fail(f"{file}: there are no rows")
    return rows


def _read_object(file: Path) -> dict[str, Any]:
    try:
        found = json_document(file)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    if not isinstance(found, dict):
        fail(f"{file}: is not an object but {type(found).__name__}")
    return found


_NAMES = {BEST: "best", WORST: "worst"}


@app.command()
def goyal(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="The study, such as cnn_human.json.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file to write.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the presentation order.")] = 0,
    target: AlignmentTarget = None,
    as_json: AsJson = False,
) -> None:
    """Converts the human study of Goyal et al. 2022 into pairs of texts, as DRPE does (section 4.1).

    A pair is the best and the worst summary of an article: the first system that an annotator lists, with two
    votes or more; articles without a clear best and worst are left out. Which text is first is drawn,
    and the seed is in the tags. Prints in how many articles each system gets two votes or more (there every
    listed system counts), and Krippendorff's alpha of the annotators' sets with the MASI distance.

    For example:

        dramaturg research convert goyal cnn_human.json pairs.jsonl --seed 7
    """
    try:
        study = read_study(json_document(source), seed)
    except OSError as error:
        fail(f"{source}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    except TypeError as error:
        fail(f"{source}: {error}")
    write_messages(destination, study.requests)
    malformed = [one for one in study.left_out if one.malformed]
    for one in malformed:
        echo(f"{source}: {one.key}: {one.reason}", err=True)
    alphas = run(_alphas(study, target)) if study.articles else {}
    if as_json:
        typer.echo(json.dumps(_summary(study, alphas, destination, seed), ensure_ascii=False))
    else:
        _print(study, alphas, destination)
    tell_next("eval", destination)
    raise typer.Exit(1 if malformed else 0)


async def _alphas(study: Study, target: str | None) -> dict[str, Estimate]:
    """Krippendorff's alpha of each choice; undefined, with the reason, if the service fails."""
    try:
        async with service_channel("alignment", target) as channel:
            stub = AlignmentServiceStub(channel)
            return {
                choice: (await stub.MeasureAgreement(agreement_request(study, choice)))
                .groups[0]
                .krippendorff_alpha
                for choice in _NAMES
            }
    except grpc.aio.AioRpcError as error:
        reason = f"the alignment service failed: {from_rpc_error(error).message}"
        return {choice: Estimate(undefined=reason) for choice in _NAMES}


def _summary(study: Study, alphas: dict[str, Estimate], destination: Path, seed: int) -> dict[str, Any]:
    """What ``--json`` prints (documented in docs/reference/cli.md; keep it stable)."""
    reasons = Counter(one.reason for one in study.left_out)
    return {
        "pairs": len(study.requests),
        "articles": len(study.articles),
        "left_out": dict(sorted(reasons.items())),
        SEED_TAG: seed,
        "vote_shares": _shares(study),
        "krippendorff_alpha_masi": {
            _NAMES[choice]: alpha.value if alpha.HasField("value") else None
            for choice, alpha in alphas.items()
        },
        "rows": str(destination),
    }


def _shares(study: Study) -> dict[str, dict[str, float]]:
    return {name: vote_shares(study, choice) for choice, name in _NAMES.items()} if study.articles else {}


def _print(study: Study, alphas: dict[str, Estimate], destination: Path) -> None:
    console = output()
    if study.articles:
        shares = _shares(study)
        table = Table("", columns("chosen by two or more", figures=tuple(shares)))
        for system in shares["best"]:
            table.add_row(system, *(percent_of(found[system]) for found in shares.values()))
        table.add_row("Krippendorff alpha (MASI)", *(_shown(alphas[choice]) for choice in _NAMES))
        print_tables(console, table)
    for reason, count in sorted(Counter(one.reason for one in study.left_out).items()):
        console.print(f"{counted(count, 'article')} left out: {reason}")
    console.print(f"{len(study.requests)} pairs to {destination}", soft_wrap=True)


def _shown(alpha: Estimate) -> str:
    return number(alpha.value) if alpha.HasField("value") else f"undefined: {alpha.undefined}"


@app.command()
def proscript(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="References, .json or .jsonl.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of rows to write.")],
    graphs: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=FILE", help="Predictions of a model, matched by id; repeatable."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="MEMBER", help='A member that becomes a tag, besides "domain".'),
    ] = None,
) -> None:
    """Converts the released format of proScript into rows of the kind "graphs".

    Each script becomes a row with the tag "degree" (the largest number of edges into, or out of, one
    event), and "domain" where the record has it. The root that the release calls NONE gets its text,
    "decided to" and the scenario. Predictions that are there already are measured beside what models
    predict anew. Invalid records are named on standard error and left out; the exit code is then 1.

    For example:

        dramaturg research convert proscript proscript_dev.json dev.jsonl

        dramaturg research convert proscript references.json rows.jsonl --graphs my-model=predictions.json
    """
    files: dict[str, Path] = {}
    for text in graphs or ():
        model, equals, file = text.partition("=")
        if not (model and equals and file):
            fail(f"--graphs {text!r} is not of the form MODEL=FILE")
        if model in files:
            fail(f"--graphs names the model {model!r} twice")
        files[model] = Path(file)
    try:
        rows = read_rows(source)
        if not rows:
            fail(f"{source}: there are no rows")
        conversion = convert_rows(
            rows,
            source=source.name,
            tags=tag or (),
            predictions={model: read_rows(file) for model, file in files.items()},
        )
    except FileError as error:
        fail(str(error))
    write_messages(destination, conversion.requests)
    for name, row_id, reason in conversion.skipped:
        echo(f"{name}: {row_id}: {reason}; left out", err=True)
    degrees = Counter(int(request.tags[DEGREE]) for request in conversion.requests)
    counted = ", ".join(f"{count} of degree {degree}" for degree, count in sorted(degrees.items()))
    echo(f"{counted or 'nothing'}", err=True)
    echo(f"{len(conversion.requests)} scripts to {destination}; {len(conversion.skipped)} left out", err=True)
    tell_next("eval", destination)
    raise typer.Exit(1 if conversion.skipped else 0)
