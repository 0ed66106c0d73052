"""The commands of labels against a gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dramaturg.client import DramaturgClient
from dramaturg.testing import serve
from gateway.settings import JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.dramaturg.report.many import many
from tests.support.command_line import dramaturg
from tests.support.console import Consoled, serve_console
from tests.support.labelling import finished_run


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Consoled]:
    async with AlignmentApp().open() as contracts, serve(*contracts) as alignment:
        judges = [JudgeEntry(role="alignment", name="x", target=alignment.target)]
        async with serve_console(folder, judges) as served:
            finished_run(served.store, many("scripts", 10))
            yield served


async def test_a_set_is_drawn_labelled_and_exported(tmp_path: Path) -> None:
    async with gateway(tmp_path) as served:
        target = ("--target", served.target)
        made = await dramaturg(
            "labels", "create", "run", "--size", "4", "--draw", "stratified", "--name", "pilot", *target
        )
        assert made.code == 0, made.err
        set_id = made.out.strip()
        rows = [
            {"position": place, "annotator": name, "label": "PASS" if letter == "P" else "FAIL"}
            for name, letters in (("ann", "PPFF"), ("bob", "PPFP"))
            for place, letter in enumerate(letters)
        ]
        assert f"labels show {set_id}" in made.err
        unlabelled = await dramaturg("labels", "show", set_id, *target)
        assert "there are no labels yet" in unlabelled.err
        lines = await dramaturg("labels", "export", set_id, tmp_path / "none.jsonl", *target)
        assert (lines.code, (tmp_path / "none.jsonl").exists()) == (1, False)
        own = tmp_path / "labels.csv"
        own.write_text("item,label\nt/a,PASS\n")
        none = await dramaturg("labels", "export", set_id, own, *target)
        assert (none.code, "there are no labels yet" in none.err) == (1, True)
        sheet = tmp_path / "given.jsonl"
        sheet.write_text("".join(json.dumps(row) + "\n" for row in rows))
        written = await dramaturg("labels", "write", set_id, sheet, *target)
        assert (written.code, written.err.splitlines()[0]) == (0, "8 labels")
        shown = (await dramaturg("labels", "show", set_id, "--json", *target)).json
        assert (shown["draw"], shown["annotators"]) == ("stratified", {"ann": 4, "bob": 4})
        assert shown["agreement"][0]["pairs"][0]["cohen_kappa"] == 0.5
        table = await dramaturg("labels", "show", set_id, *target)
        assert "0.500" in table.out
        other = await dramaturg("labels", "export", set_id, own, *target)
        assert (other.code, "has other columns than the sheet" in other.err) == (2, True)
        assert own.read_text() == "item,label\nt/a,PASS\n"
        kept = tmp_path / "labels.jsonl"
        kept.write_text('{"task": "mine"}\n')
        refused = await dramaturg("labels", "export", set_id, kept, *target)
        assert (refused.code, kept.read_text()) == (2, '{"task": "mine"}\n')
        kept.unlink()
        for _ in range(2):  # a sheet is written again
            assert (await dramaturg("labels", "export", set_id, kept, *target)).code == 0
        exported = tmp_path / "exported.csv"
        assert (await dramaturg("labels", "export", set_id, exported, *target)).code == 0
        assert (await dramaturg("labels", "export", set_id, exported, *target)).code == 0
        assert len(exported.read_text().splitlines()) == 9
        listed = (await dramaturg("labels", "list", "--json", *target)).json
        assert [one["name"] for one in listed["label_sets"]] == ["pilot"]
        assert (await dramaturg("labels", "delete", set_id, *target)).code == 0
        gone = await dramaturg("labels", "show", set_id, *target)
        assert gone.code == 2
        assert "does not exist" in gone.err


async def test_the_client_labels_its_own_queue(tmp_path: Path) -> None:
    async with gateway(tmp_path) as served, DramaturgClient(served.target) as client:
        made = await client.labels.create("run", sample_size=3, seed=1)
        await client.labels.write(made.id, "ann", 1, "FAIL", note="unclear")
        left = [
            one.position async for one in client.labels.items(made.id, annotator="ann", unlabelled_only=True)
        ]
        assert left == [0, 2]
        assert [one.note async for one in client.labels.items(made.id, annotator="ann")] == [
            "",
            "unclear",
            "",
        ]
        text = b"".join([piece async for piece in client.labels.export(made.id)])
        assert json.loads(text)["label"] == "FAIL"
