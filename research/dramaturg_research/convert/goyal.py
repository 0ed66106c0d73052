"""``dramaturg research convert goyal``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.tables import counted, number, print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError, json_document
from dramaturg.results.pairs import SEED_TAG
from dramaturg.service.errors import from_rpc_error
from dramaturg.tables.cells import percent_of
from dramaturg.tables.model import Table, columns
from dramaturg_research.formats.goyal import BEST, WORST, Study, agreement_request, read_study, vote_shares

_NAMES = {BEST: "best", WORST: "worst"}


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
