"""``dramaturg judges monitor`` at a running gateway."""

from __future__ import annotations

import json
from pathlib import Path

from dramaturg.testing import FakeJudge, serve
from gateway.app import App
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from tests.support.command_line import dramaturg


async def test_a_run_with_repeats_is_the_base_of_a_monitor(tmp_path: Path) -> None:
    rows = [
        {
            "task": {"id": f"t{index}", "goal": "Write a sentence"},
            "texts": [{"id": "a", "text": f"This is text {index}."}],
            "criteria": [{"id": "clear", "passes": "It is clear.", "fails": "It is not."}],
        }
        for index in range(4)
    ]
    file = tmp_path / "anchors.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    settings = GatewaySettings(judge_targets=("127.0.0.1:*",))
    app = App(settings, RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3"))
    async with (
        serve(FakeJudge(name="theirs").contract()) as theirs,
        app.open() as contracts,
        serve(*contracts) as server,
    ):
        at = ("--target", server.target)
        made = await dramaturg("judges", "register", "rubric-judge=theirs", theirs.target, *at)
        assert made.code == 0, made.err
        judged = await dramaturg(
            *("eval", str(file), "--judge", "rubric-judge=theirs", "--repeats", "3", *at),
            *("--detach", "--json", "-o", str(tmp_path / "out")),
        )
        assert judged.code == 0, judged.err
        watched = await dramaturg("runs", "watch", judged.json["id"], *at)
        assert watched.code == 0, watched.err
        begun = await dramaturg(
            *("judges", "monitor", "rubric-judge=theirs", "--run", judged.json["id"], "--every", "12"),
            *("--on-drift", "pause", *at, "--json"),
        )
        assert begun.code == 0, begun.err
        monitor = begun.json["monitor"]
        assert (monitor["anchor_count"], monitor["interval"], monitor["drift_policy"]) == (
            4,
            "43200s",
            "DRIFT_POLICY_PAUSE",
        )
        assert "next: dramaturg judges" in begun.err
        listed = " ".join((await dramaturg("judges", *at)).out.split())
        assert "cannot be found: 5 candidates are needed, of 4" in listed
        ended = await dramaturg("judges", "monitor", "rubric-judge=theirs", "--end", *at, "--json")
        assert (ended.code, ended.json["monitor"]) == (0, None), ended.err
        refused = await dramaturg("judges", "monitor", "rubric-judge=theirs", "--run", "none", *at)
        assert (refused.code, "does not exist" in refused.err) == (2, True), refused.err


async def test_a_run_or_the_end_is_named() -> None:
    for options in ((), ("--run", "a", "--end")):
        done = await dramaturg("judges", "monitor", "critic=theirs", *options, "--target", "127.0.0.1:1")
        assert (done.code, "give one of --run and --end" in done.err) == (2, True), done.err
