"""``dramaturg judges panel`` at a running gateway."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import dramaturg
from tests.support.gateway import Fake, gateway_target


async def test_a_panel_is_added_changed_listed_and_removed(tmp_path: Path) -> None:
    runs = {"enabled": True, "url": f"sqlite:///{tmp_path}/runs.sqlite3"}
    critics = [Fake("critic", name=name) for name in "abc"]
    weights = tmp_path / "weights.toml"
    weights.write_text('[weights]\na = 2.5\nb = 1\n"c@big" = 0.5\n', encoding="utf-8")
    async with gateway_target(*critics, runs=runs) as target:
        at = ("--target", target)
        added = await dramaturg(
            *("judges", "panel", "add", "critic=trio", "--member", "a", "--member", "b", "--member", "c@big"),
            *("--quorum", "2", "--set", "owner=team-a", *at, "--json"),
        )
        assert added.code == 0, added.err
        assert (added.json["panel"]["rule"], added.json["panel"]["quorum"]) == ("majority", 2)
        assert [one["model"] for one in added.json["panel"]["members"]] == ["", "", "big"]
        weighted = await dramaturg(
            *("judges", "panel", "update", "critic=trio", "--rule", "weighted", "--weights", str(weights)),
            *("--member", "a", "--member", "b", "--member", "c@big", *at, "--json"),
        )
        assert weighted.code == 0, weighted.err
        assert [one["weight"] for one in weighted.json["panel"]["members"]] == [2.5, 1, 0.5]
        assert weighted.json["panel"]["quorum"] == 2
        listed = await dramaturg("judges", *at)
        assert "weighted of a x 2.5, b, c@big x 0.5; quorum 2" in " ".join(listed.out.split())
        changed = await dramaturg("judges", "panel", "update", "critic=trio", "--quorum", "3", *at, "--json")
        assert (changed.json["panel"]["quorum"], changed.json["panel"]["rule"]) == (3, "weighted")
        used = await dramaturg("judges", "panel", "add", "critic=p", "--member", "a", "--member", "trio", *at)
        assert (used.code, "no judge of 'critic', or a panel" in used.err) == (2, True)
        removed = await dramaturg("judges", "remove", "critic=trio", *at)
        assert removed.code == 0, removed.err


async def test_wrong_usage_is_told_before_a_gateway_is_asked() -> None:
    for options, words in (
        ((), "name the members with --member"),
        (("--member", "a=x"), "NAME[@MODEL][=WEIGHT]"),
        (("--member", "a=-1"), "NAME[@MODEL][=WEIGHT]"),
        (("--member", "=1"), "NAME[@MODEL][=WEIGHT]"),
    ):
        refused = await dramaturg("judges", "panel", "add", "critic=p", *options)
        assert (refused.code, words in refused.err) == (2, True), refused.err
