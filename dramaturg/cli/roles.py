"""``dramaturg research roles``: judging roles for texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import grpc
import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.evaluation.v1.pairs_pb2 import RolesKnown
from dramaturg.api.judging.v1.pair_judge_service_pb2 import RoleOrigin
from dramaturg.api.roles.v1.role_service_pb2 import ClusterRolesRequest, GenerateRolesRequest
from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceStub
from dramaturg.cli.options import AsJson, Target
from dramaturg.cli.output_files import check_writable, write_json_lines
from dramaturg.cli.platform import fail, gateway, output, run
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError, json_objects
from dramaturg.judge.role_sets import NAMES, SUMMARISATION, role_set
from dramaturg.judge.roles import role_shortage
from dramaturg.results.names import value_name
from dramaturg.results.quantities import counted
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error
from dramaturg.tables.model import Table, columns

app = typer.Typer()


class Text(NamedTuple):
    """A text whose readers are wanted."""

    id: str
    """What names it."""
    source: str
    """The text."""


class Wish(NamedTuple):
    """The settings of the request to RoleService."""

    objective: str
    """The set of objective roles. Empty: none."""
    coarse: int
    fine: int
    """How many roles to generate. 0: the objective roles alone."""
    eps: float | None
    """The distance of neighbours. None: the service's default."""
    model: str
    """The model. Empty: the service's default."""
    timeout: float
    """Timeout of one call, in seconds."""


@app.command("roles")
def roles(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help='JSON Lines with a member "source" (or "text"), or one plain text in .txt.'
        ),
    ],
    target: Target = None,
    objective: Annotated[
        str, typer.Option(metavar="SET", help=f"The objective roles: {', '.join(NAMES)}, or none.")
    ] = SUMMARISATION,
    coarse: Annotated[int, typer.Option(min=0, max=50, help="How many by occupation.")] = 3,
    fine: Annotated[int, typer.Option(min=0, max=50, help="How many by familiarity with the topic.")] = 2,
    eps: Annotated[
        float | None, typer.Option(min=0, max=2, help="The cosine distance up to which roles are alike.")
    ] = None,
    model: Annotated[
        str, typer.Option("--judge-model", metavar="MODEL", help="The model that names readers.")
    ] = "",
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where the roles are written.")
    ] = Path("roles.jsonl"),
    as_json: AsJson = False,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Texts worked on at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of one call, in seconds.")] = 300.0,
) -> None:
    """Generates judging roles for texts and clusters similar ones (DRPE, section 3.1).

    One model call a text, and another one for missing roles. The file written has one line a text: its id,
    the roles that stay, how they were generated and clustered, and why there are fewer than wanted where
    that is so. The roles can be given to "eval" of pairs as the subjective_roles of a row, which saves
    these calls.

    Exit codes: 0 every text has its roles, 1 some have fewer than wanted, 2 wrong usage.

    For example:

        dramaturg research roles pairs.jsonl --judge-model my-model --out roles.jsonl

        dramaturg research roles article.txt --coarse 5 --fine 0 --objective none
    """
    if objective not in (*NAMES, "none"):
        fail(f"--objective {objective!r}: the sets are {', '.join(NAMES)}, or none")
    if not coarse and not fine:
        fail("--coarse and --fine are both 0: there is nothing to find")
    try:
        texts = list(_read(file))
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except UnicodeDecodeError as error:
        fail(f"{file}: is not UTF-8: {error.reason} at byte {error.start}")
    except LineError as error:
        fail(str(error))
    check_writable(out)
    wish = Wish("" if objective == "none" else objective, coarse, fine, eps, model, timeout)
    found = run(_find_all(texts, wish, target, concurrency))
    described = [{"id": text.id, **MessageToDict(known)} for text, known in zip(texts, found, strict=True)]
    write_json_lines(out, described)
    failed = sum(bool(known.failure) for known in found)
    if as_json:
        summary = {"texts": len(texts), "failed_texts": failed, "roles": sum(len(k.roles) for k in found)}
        typer.echo(json.dumps({**summary, "rows": str(out)}, ensure_ascii=False))
    else:
        _print(texts, found)
        echo(f"roles of {counted(len(texts), 'text')} to {out}")
    tell_next("eval", out)
    raise typer.Exit(1 if failed else 0)


def _read(file: Path) -> Iterator[Text]:
    if file.suffix == ".txt":
        content = file.read_text(encoding="utf-8-sig")
        if not content.strip():
            raise LineError(file, 0, "there is no text")
        yield Text(file.stem, content)
        return
    line = 0
    for line, row in json_objects(file):
        source = row.get("source") or row.get("text")
        if not isinstance(source, str) or not source.strip():
            raise LineError(file, line, 'has no string "source" or "text"')
        yield Text(str(row.get("id") or line), source)
    if not line:
        raise LineError(file, 0, "there are no rows")


async def _find_all(
    texts: Sequence[Text], wish: Wish, target: str | None, concurrency: int
) -> Sequence[RolesKnown]:
    async with gateway(target, ["roles"]) as address, open_channel(address) as channel:
        slots = asyncio.Semaphore(concurrency)

        async def find(text: Text) -> RolesKnown:
            async with slots:
                return await _find(channel, text, wish)

        return await asyncio.gather(*map(find, texts))


async def _find(channel: grpc.aio.Channel, text: Text, wish: Wish) -> RolesKnown:
    """The roles of one text; after a failure, which ``failure`` states, those that were found."""
    stub = RoleServiceStub(channel)
    known = RolesKnown(roles=role_set(wish.objective) if wish.objective else ())
    try:
        known.generation.CopyFrom(
            await stub.GenerateRoles(
                GenerateRolesRequest(
                    source=text.source,
                    coarse_count=wish.coarse,
                    fine_count=wish.fine,
                    options=JudgeOptions(model=wish.model),
                ),
                timeout=wish.timeout,
            )
        )
        found = len(known.generation.roles)
        known.failure = known.generation.failure or role_shortage(found, wish.coarse + wish.fine)
        known.roles.extend(known.generation.roles)
        if known.generation.roles:
            asked = ClusterRolesRequest(roles=known.roles, eps=wish.eps)
            known.clustering.CopyFrom(await stub.ClusterRoles(asked, timeout=wish.timeout))
            del known.roles[:]
            known.roles.extend(known.clustering.roles)
    except grpc.aio.AioRpcError as error:
        known.failure = f"the role service failed: {from_rpc_error(error).message}"
    return known


def _print(texts: Sequence[Text], found: Sequence[RolesKnown]) -> None:
    table = Table("", columns("text", "origin", "type", "description"), heads=4)
    for text, known in zip(texts, found, strict=True):
        for role in known.roles:
            origin = value_name(RoleOrigin, role.origin).removeprefix("SUBJECTIVE_")
            table.add_row(text.id, origin.lower(), role.type, role.description)
        if known.failure:
            table.add_row(text.id, "", "", known.failure, style="yellow")
    print_tables(output(), table)
