from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg import conformance as kit
from dramaturg.cli.judges import certify
from dramaturg.conformance.certificate import Certificate, Property
from dramaturg.judge.contracts import judge_contract
from dramaturg.meta_evaluation.variants import AUTHORITY
from dramaturg.testing import serve
from gateway.app import App
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from tests.dramaturg.cli.align.test_align import people_and_judge
from tests.dramaturg.conformance.services import rate_seven, service
from tests.dramaturg.conformance.test_certificate import Knowing
from tests.support.align import write
from tests.support.command_line import dramaturg

CERTIFICATE = Certificate(
    role="critic",
    name="<b>llm-critic</b>",
    version="1.2.0",
    model="",
    models=["small"],
    prompts={"critic": "ab" * 32},
    sets=["cd" * 32],
    measured_at="2026-01-02T03:04:05+00:00",
    request_count=12,
    abstained=1,
    errors=["0/tea/clean: UNAVAILABLE: gone"],
    properties=[
        Property("injection", "the shift", kit.OUTSIDE, 0.1, -0.5, -0.7, -0.3, 40),
        Property("position", "the shift", kit.WITHIN, 0.1, 0.0, -0.05, 0.05, 60),
        Property("self-preference", "needs pairs", kit.NOT_APPLICABLE),
    ],
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    seen: list[object] = []

    async def measured(role: object, target: str, **options: object) -> Certificate:
        seen.append((target, options["tolerances"]))
        return CERTIFICATE

    monkeypatch.setattr(kit, "certify", measured)
    return seen


def test_the_certificate_is_a_table_a_page_and_json(asked: list[object], tmp_path: Path) -> None:
    page = tmp_path / "critic.html"
    arguments = ["critic", "localhost:1", "--tolerance", "injection=0.05", "--page", str(page)]
    done = CliRunner().invoke(certify.app, ["certify", *arguments])
    assert done.exit_code == 1, done.output
    assert asked == [("localhost:1", {"injection": 0.05})]
    assert "outside" in done.output
    assert "1 requests failed" in done.output
    html = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;llm-critic&lt;/b&gt;" in html
    assert not [part for part in ("<b>", "http:", "https:", "<script") if part in html]
    assert "<td data-label='bounds'>-0.700 to -0.300</td>" in html
    done = CliRunner().invoke(certify.app, ["certify", *arguments, "--json"])
    assert json.loads(done.stdout) == json.loads(json.dumps(CERTIFICATE.to_json()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["critic"], "its address or command"),
        (["nobody", "localhost:1"], "has no checks"),
        (["critic", "localhost:1", "--judge", "gpt"], "go together"),
        (["critic", "localhost:1", "--judge-family", "llama"], "go together"),
        (["critic=theirs", "localhost:1"], "its address or command"),
        (["critic", "localhost:1", "--tolerance", "charm=0.1"], "PROPERTY=SHARE"),
        (["critic", "localhost:1", "--tolerance", "injection=2"], "PROPERTY=SHARE"),
    ],
)
def test_wrong_arguments(asked: list[object], arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(certify.app, ["certify", *arguments])
    assert done.exit_code == 2
    assert message in done.output
    assert not asked


@pytest.mark.parametrize(
    ("judge", "wrong", "value", "conclusion"),
    [
        ("gpt", 13, 1.0, kit.MAY_REPLACE),
        ("gpt", 2, 0.0, kit.NOT_SHOWN),
        ("nobody", 13, None, kit.NOT_APPLICABLE),
    ],
)
def test_labels_add_whether_the_judge_may_replace_people(
    asked: list[object], tmp_path: Path, judge: str, wrong: int, value: float | None, conclusion: str
) -> None:
    labels, page = write(tmp_path / "labels.jsonl", people_and_judge(120, wrong)), tmp_path / "critic.html"
    arguments = ["critic", "localhost:1", "--labels", str(labels), "--judge", judge]
    done = CliRunner().invoke(
        certify.app, ["certify", *arguments, "--epsilon", "0.1", "--page", str(page), "--json"]
    )
    found = json.loads(done.stdout)["properties"][-1]
    assert (found["name"], found["value"], found["tolerance"]) == ("replacement", value, 0.1)
    assert found["conclusion"] == conclusion
    table = CliRunner().invoke(certify.app, ["certify", *arguments]).stdout
    assert conclusion in next(line for line in table.splitlines() if "replacement" in line)
    assert f"{conclusion}</span>" in page.read_text(encoding="utf-8").split("replacement<br>")[1]
    assert asked


def judged_pairs(people: str, count: int = 60) -> list[dict[str, object]]:
    """Pairs of which the judge chooses its own family's text, and people ``people``, in both orders."""
    texts = {"first": "ours", "first_family": "llama", "second": "theirs", "second_family": "qwen"}
    turned = {"first": "theirs", "first_family": "qwen", "second": "ours", "second_family": "llama"}
    rows: list[dict[str, object]] = []
    for index in range(count):
        rows.append({"id": str(index), **texts, "judged": "first", "human": people})
        other = {"first": "second", "second": "first", "": ""}[people]
        rows.append({"id": str(index), **turned, "judged": "second", "human": other})
    return rows


@pytest.mark.parametrize(
    ("people", "tolerance", "value", "conclusion"),
    [
        ("first", "0.1", 0.0, kit.WITHIN),
        ("first", "0.01", 0.0, kit.NOT_SHOWN),
        ("second", "0.1", 1.0, kit.OUTSIDE),
        ("", "0.1", None, kit.NOT_APPLICABLE),
    ],
)
def test_pairs_show_whether_the_judge_prefers_its_own_family(
    asked: list[object], tmp_path: Path, people: str, tolerance: str, value: float | None, conclusion: str
) -> None:
    file = write(tmp_path / "pairs.jsonl", judged_pairs(people))
    options = ("--pairs", str(file), "--judge-family", "llama", "--tolerance", f"self-preference={tolerance}")
    done = CliRunner().invoke(certify.app, ["certify", "critic", "localhost:1", *options, "--json"])
    found = [one for one in json.loads(done.stdout)["properties"] if one["name"] == "self-preference"]
    # It takes the place of the test without pairs.
    assert [(one["value"], one["conclusion"]) for one in found] == [(value, conclusion)]
    assert found[0]["tolerance"] == float(tolerance)
    assert found[0]["case_count"] == (0 if value is None else 120)
    assert (found[0]["lower"] is None) == (value is None)
    assert asked


@pytest.mark.parametrize(
    ("changes", "code", "told"), [([], 0, "not stale"), (["version 1, now 2"], 1, "stale: version 1, now 2")]
)
def test_a_stale_certificate_is_told(
    asked: list[object],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    changes: list[str],
    code: int,
    told: str,
) -> None:
    async def compared(earlier: object, *arguments: object, **options: object) -> list[str]:
        assert earlier == json.loads(json.dumps(CERTIFICATE.to_json()))
        return changes

    monkeypatch.setattr(kit, "changes_since", compared)
    file = tmp_path / "critic.json"
    file.write_text(json.dumps(CERTIFICATE.to_json()), encoding="utf-8")
    arguments = ["critic", "localhost:1", "--stale", str(file)]
    done = CliRunner().invoke(certify.app, ["certify", *arguments])
    assert (done.exit_code, done.stdout.strip()) == (code, told)
    assert json.loads(CliRunner().invoke(certify.app, ["certify", *arguments, "--json"]).stdout) == {
        "changes": changes
    }
    file.write_text("{}", encoding="utf-8")
    assert "is no certificate" in CliRunner().invoke(certify.app, ["certify", *arguments]).output
    assert not asked


@pytest.mark.slow
async def test_a_registered_judge_is_certified_by_its_name(tmp_path: Path) -> None:
    settings = GatewaySettings(judge_targets=("127.0.0.1:*",))
    app = App(settings, RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3"))
    async with (
        serve(service("rating-judge", rate_seven, "theirs")) as theirs,
        app.open() as contracts,
        serve(*contracts) as server,
    ):
        at = ("--target", server.target)
        made = await dramaturg("judges", "register", "rating-judge=theirs", theirs.target, *at)
        assert made.code == 0, made.err
        done = await dramaturg("judges", "certify", "rating-judge=theirs", *at, "--json")
        assert (done.code, done.json["role"], done.json["name"]) == (1, "rating-judge", "theirs"), done.err
        listed = (await dramaturg("judges", *at, "--json")).json["judges"][-1]
        assert (listed["certificate"]["version"], listed["certificate"]["stale"]) == (
            done.json["version"],
            False,
        )
        outcome, measured = listed["certificate"]["outcome"], done.json["measured_at"][:10]
        assert " outside" in outcome
        shown = " ".join((await dramaturg("judges", *at)).out.split())
        assert outcome.split(",")[0] in shown
        assert measured in shown
        unknown = await dramaturg("judges", "certify", "rating-judge=ours", *at)
        assert unknown.code == 2
        assert "rating-judge=theirs" in unknown.err


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_panel_is_certified_by_its_name_and_by_its_own_answers(tmp_path: Path) -> None:
    settings = GatewaySettings(judge_targets=("127.0.0.1:*",))
    app = App(settings, RunsSettings(enabled=True, url=f"sqlite:///{tmp_path}/runs.sqlite3"))
    misled = judge_contract(Knowing(AUTHORITY))
    async with (
        serve(judge_contract(Knowing())) as sound,
        serve(misled) as other,
        app.open() as contracts,
        serve(*contracts) as server,
    ):
        at = ("--target", server.target)
        for name, target in (("sound", sound.target), ("misled", other.target)):
            made = await dramaturg("judges", "register", f"execute={name}", target, *at)
            assert made.code == 0, made.err
        members = ("--member", "sound", "--member", "misled", "--rule", "any-fail")
        made = await dramaturg("judges", "panel", "add", "execute=both", *members, *at)
        assert made.code == 0, made.err
        alone = await dramaturg("judges", "certify", "execute=misled", *at, "--json")
        done = await dramaturg("judges", "certify", "execute=both", *at, "--json")
        # What misleads one member alone does not mislead the panel.
        by_judge, by_panel = (
            {prop["name"]: prop["conclusion"] for prop in one.json["properties"]} for one in (alone, done)
        )
        assert (by_judge["authority"], by_panel["authority"]) == (kit.OUTSIDE, kit.WITHIN), done.err
        assert by_panel["missed faults"] == kit.WITHIN
        version = "any-fail, quorum 2: sound (knowing 2.1.0), misled (knowing 2.1.0)"
        assert (done.json["name"], done.json["version"], done.json["errors"]) == ("both", version, [])
        file = tmp_path / "both.json"
        file.write_text(json.dumps(done.json), encoding="utf-8")
        fresh = await dramaturg("judges", "certify", "execute=both", *at, "--stale", str(file))
        assert (fresh.code, fresh.out.strip()) == (0, "not stale"), fresh.err
        misled.identity.version = "3.0.0"
        listed = (await dramaturg("judges", *at, "--json")).json["judges"]
        (both,) = [one for one in listed if one["name"] == "both"]
        assert both["certificate"]["stale"]
        stale = await dramaturg("judges", "certify", "execute=both", *at, "--stale", str(file))
        assert stale.code == 1
        assert "misled (knowing 3.0.0)" in stale.out
