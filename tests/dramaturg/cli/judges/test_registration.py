"""``dramaturg judges register``, ``update``, ``remove`` and ``monitor`` at a running gateway."""

from __future__ import annotations

import json
from pathlib import Path

from dramaturg.testing import FakeJudge, serve
from gateway.app import App
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from tests.support.command_line import dramaturg
from tests.support.gateway import Fake


async def test_a_judge_is_registered_changed_and_removed(tmp_path: Path) -> None:
    settings = GatewaySettings(judge_targets=("127.0.0.1:*",))
    app = App(settings, RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3"))
    async with (
        serve(Fake("critic").contract()) as theirs,
        app.open() as contracts,
        serve(*contracts) as server,
    ):
        at = ("--target", server.target)
        made = await dramaturg(
            *("judges", "register", "critic=theirs", theirs.target, "--expect-version", ">=1,<2"),
            *("--set", "version_policy=pause", "--set", "owner=team-a", "--set", "labels.tier=external"),
            *(*at, "--json"),
        )
        assert made.code == 0, made.err
        assert (made.json["health"], made.json["registered"], made.json["expected_version"]) == (
            "SERVING",
            True,
            ">=1,<2",
        )
        assert made.json["labels"] == {"tier": "external"}
        again = await dramaturg("judges", "register", "critic=theirs", theirs.target, *at)
        assert (again.code, "a judge of that role and name is registered" in again.err) == (2, True)
        changed = await dramaturg(
            *("judges", "update", "critic=theirs", "--set", "owner=team-b", "--clear", "expected_version"),
            *("--clear", "labels", *at, "--json"),
        )
        assert changed.code == 0, changed.err
        assert (changed.json["owner"], changed.json["expected_version"], changed.json["labels"]) == (
            "team-b",
            "",
            {},
        )
        listed = await dramaturg("judges", *at)
        assert "theirs" in listed.out
        removed = await dramaturg("judges", "remove", "critic=theirs", *at)
        assert (removed.code, removed.out) == (0, "")
        assert "theirs" not in (await dramaturg("judges", *at)).out
        refused = await dramaturg("judges", "register", "critic=theirs", "10.0.0.1:443", *at)
        assert (refused.code, "judge_targets" in refused.err) == (2, True)


async def test_wrong_usage_is_told_before_a_gateway_is_asked() -> None:
    for command, words in (
        (("register", "theirs", "a:1"), "'theirs' is not of the form ROLE=NAME"),
        (("update", "critic=theirs"), "nothing to change"),
        (("register", "critic=theirs", "a:1", "--set", "x"), "'x' is not of the form FIELD=VALUE"),
        (("register", "critic=theirs", "a:1", "--set", "retry.atempts=3"), "did you mean attempts?"),
        (("update", "critic=theirs", "--set", "retry.attempts=99"), "--set retry.attempts=99: "),
    ):
        done = await dramaturg("judges", *command, "--target", "127.0.0.1:1")
        assert (done.code, words in done.err) == (2, True), done.err


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
