"""Who sees the pages of the console, and what their answers permit a browser."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from dramaturg.api.evaluation.v1.judge_certificate_pb2 import (
    PROPERTY_CONCLUSION_NOT_APPLICABLE,
    PROPERTY_CONCLUSION_OUTSIDE,
    PROPERTY_CONCLUSION_WITHIN,
    CertifiedProperty,
    JudgeCertificate,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    JUDGE_HEALTH_QUARANTINED,
    Judge,
    JudgePanel,
    JudgeShadow,
    PanelMember,
)
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PAUSED, RUN_STATE_PREPARING, RUN_STATE_RUNNING
from dramaturg.service.auth import audit
from dramaturg.service.settings import SettingsError
from dramaturg.testing import in_thread, serve
from gateway.console.comparison import named_reason
from gateway.console.judges import judge_view
from gateway.console.runs import in_words
from gateway.console.visit import render
from gateway.settings import JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.dramaturg.report.many import many
from tests.gateway.console.conftest import EVALUATOR, JUDGES, STRANGER, VIEWER
from tests.gateway.evaluations.test_judge_comparisons import ABSTAIN, FAIL, PASS, candidate, sample
from tests.support.auth import Holder
from tests.support.certificates import Authority
from tests.support.command_line import ROOT
from tests.support.console import Consoled, serve_console
from tests.support.labelling import finished_run
from tests.support.runs import create, judged


def running(console: Consoled, run_id: str = "run-1", tenant: str = "research") -> None:
    create(console.store, run_id, samples=3, tenant=tenant)
    console.store.runs.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])


class Browserless:
    """A client that keeps cookies and sends what a browser sends."""

    def __init__(self, console: Consoled) -> None:
        self._url = console.url
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        return await self._request("GET", path, {}, headers)

    async def post(
        self, path: str, fields: Mapping[str, str] | None = None, **headers: str
    ) -> aiohttp.ClientResponse:
        return await self._request("POST", path, fields or {}, {"Origin": self._url, **headers})

    async def post_form(self, path: str, form: aiohttp.FormData, **headers: str) -> aiohttp.ClientResponse:
        """Posts a form with a file."""
        return await self._request("POST", path, form, {"Origin": self._url, **headers})

    async def sign_in(self, who: Holder) -> aiohttp.ClientResponse:
        return await self.post("/console/sign-in", {"token": who.token})

    async def _request(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | aiohttp.FormData,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        address = self._url + path
        response = await self._session.request(
            method, address, data=fields or None, headers=named, allow_redirects=False
        )
        await response.read()
        return response


async def test_pages_ask_for_a_token_and_return_to_the_page(guarded: Consoled) -> None:
    running(guarded)
    async with Browserless(guarded) as visitor:
        asked = await visitor.get("/console/runs/run-1")
        assert (asked.status, asked.headers["Location"]) == (303, "/console/sign-in?next=/console/runs/run-1")
        refused = await visitor.post("/console/sign-in", {"token": "wrong"})
        assert refused.status == 401
        assert not refused.cookies
        entered = await visitor.post(
            "/console/sign-in", {"token": EVALUATOR.token, "next": "/console/runs/run-1"}
        )
        assert (entered.status, entered.headers["Location"]) == (303, "/console/runs/run-1")
        cookie = entered.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/console/"} <= set(cookie.split("; "))
        assert EVALUATOR.token not in cookie
        assert (await visitor.get("/console/runs/run-1")).status == 200
        await visitor.post("/console/sign-out")
        assert (await visitor.get("/console/")).status == 303


@pytest.mark.parametrize(
    "path", ["%0d%0aX-Injected:%20a", "%0a", "%00", "%e2%80%a8", "a%0d%0a%0d%0a<b>", "?a=%0d%0a"]
)
async def test_line_ends_in_a_path_are_in_no_header(guarded: Consoled, path: str) -> None:
    async with Browserless(guarded) as visitor:
        for prefix in ("", "runs/", "sign-in"):
            asked = await visitor.get(f"/console/{prefix}{path}")
            assert asked.status in {200, 303}
            assert asked.headers.get("Location", "/console/sign-in?next=/console/").endswith(
                ("/console/", "/console/runs/", "/console/sign-in")
            )
            assert "X-Injected" not in asked.headers
        await visitor.sign_in(EVALUATOR)
        assert (await visitor.get(f"/console/nothing/{path}")).status == 404


async def test_the_next_sign_in_of_a_visitor_ends_its_session(guarded: Consoled) -> None:
    async with Browserless(guarded) as first, Browserless(guarded) as second, Browserless(guarded) as other:
        for browser in (first, other):
            await browser.sign_in(EVALUATOR if browser is first else VIEWER)
        assert (await first.get("/console/")).status == 200
        await second.sign_in(EVALUATOR)
        assert (await first.get("/console/")).status == 303
        assert (await second.get("/console/")).status == 200
        assert (await other.get("/console/")).status == 200, "of another visitor"


async def test_a_sign_in_ends_the_session_of_another_visitor_in_the_same_browser(guarded: Consoled) -> None:
    async with Browserless(guarded) as browser, Browserless(guarded) as stolen:
        entered = await browser.sign_in(EVALUATOR)
        copy = entered.headers["Set-Cookie"].partition(";")[0]
        assert (await stolen.get("/console/", Cookie=copy)).status == 200
        await browser.sign_in(VIEWER)
        assert (await stolen.get("/console/", Cookie=copy)).status == 303


async def test_sign_ins_and_refused_forms_are_in_the_audit_log(guarded: Consoled, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    audit.configure(str(log))
    try:
        async with Browserless(guarded) as visitor:
            await visitor.sign_in(EVALUATOR)
            await visitor.post("/console/sign-in", {"token": "wrong-0123456789"})
            await visitor.post("/console/sign-in", {"token": VIEWER.token}, Origin="https://evil.example")
            await visitor.post("/console/runs/%0a/cancel", Origin="https://evil.example")
    finally:
        audit.configure("")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(one["principal"], one["tenant"], one["method"], one["outcome"]) for one in lines] == [
        ("evaluator@research", "research", "/console/sign-in", "OK"),
        ("", "", "/console/sign-in", "UNAUTHENTICATED"),
        ("", "", "/console/sign-in", "PERMISSION_DENIED"),
        ("", "", "/console/", "PERMISSION_DENIED"),
    ]
    assert all(one["peer"].startswith("ipv4:127.0.0.1:") and one["request_id"] for one in lines)
    text = log.read_text()
    assert not [secret for secret in (EVALUATOR.token, VIEWER.token, "wrong-0") if secret in text]


async def test_over_tls_the_cookie_is_of_this_host_and_pages_of_plain_http_are_foreign(
    tmp_path: Path,
) -> None:
    issued = Authority(tmp_path / "certificates").issue("localhost")
    files: dict[str, Any] = {
        "tls_certificate_file": issued.certificate,
        "tls_private_key_file": issued.private_key,
    }
    with in_thread(serve_console(tmp_path, JUDGES, (EVALUATOR,), **files)) as served:
        assert served.url.startswith("https://")
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(
            served.url, connector=connector, cookie_jar=aiohttp.DummyCookieJar()
        ) as browser:

            async def post(path: str, origin: str, cookie: str = "") -> tuple[int, str]:
                headers = {"Origin": origin, "Cookie": cookie}
                fields = {"token": EVALUATOR.token}
                async with browser.post(path, data=fields, headers=headers, allow_redirects=False) as answer:
                    return answer.status, answer.headers.get("Set-Cookie", "")

            plain = served.url.replace("https://", "http://")
            assert await post("/console/sign-in", plain) == (403, "")
            status, cookie = await post("/console/sign-in", served.url)
            assert status == 303
            value, *attributes = cookie.split("; ")
            assert value.startswith("__Host-dramaturg_session=")
            assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= set(attributes)
            assert not [one for one in attributes if one.startswith("Domain")]

            async def reached(cookie: str) -> int:
                async with browser.get(
                    "/console/", headers={"Cookie": cookie}, allow_redirects=False
                ) as page:
                    return page.status

            assert await reached(value) == 200
            # A cookie that another host of the domain can set.
            assert await reached(value.removeprefix("__Host-")) == 303
            status, cookie = await post("/console/sign-out", served.url, value)
            assert status == 303
            assert {"Secure", "Path=/", "Max-Age=0"} <= set(cookie.split("; "))
            assert await reached(value) == 303


async def test_a_proxy_with_tls_may_be_in_front_of_a_console_without(guarded: Consoled) -> None:
    async with Browserless(guarded) as visitor:
        proxied = guarded.url.replace("http://", "https://")
        entered = await visitor.post("/console/sign-in", {"token": EVALUATOR.token}, Origin=proxied)
        assert entered.status == 303


@pytest.mark.parametrize(
    "next_page", ["//evil.example/", "https://evil.example", "/console/\\evil", "/other"]
)
async def test_a_sign_in_returns_to_pages_of_the_console_alone(guarded: Consoled, next_page: str) -> None:
    async with Browserless(guarded) as visitor:
        entered = await visitor.post("/console/sign-in", {"token": VIEWER.token, "next": next_page})
        assert entered.headers["Location"] == "/console/"


async def test_runs_of_another_tenant_do_not_exist(guarded: Consoled) -> None:
    running(guarded)
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(STRANGER)
        assert (await visitor.get("/console/runs/run-1")).status == 404
        assert "run-1" not in await (await visitor.get("/console/")).text()
        assert (await visitor.post("/console/runs/run-1/pause")).status == 404
        assert (await visitor.get("/console/runs/run-1/report")).status == 404


async def test_a_viewer_reads_and_changes_nothing(guarded: Consoled) -> None:
    running(guarded)
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(VIEWER)
        shown = await (await visitor.get("/console/runs/run-1")).text()
        assert "a run" in shown
        assert "/pause" not in shown
        refused = await visitor.post("/console/runs/run-1/pause")
        assert refused.status == 403
        assert "may not call" in await refused.text()
    run = guarded.store.runs.get("run-1")
    assert run is not None
    assert run.state == RUN_STATE_RUNNING


async def test_who_may_write_changes_the_state(guarded: Consoled) -> None:
    running(guarded)
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(EVALUATOR)
        assert "/console/runs/run-1/pause" in await (await visitor.get("/console/runs/run-1")).text()
        assert (await visitor.post("/console/runs/run-1/pause")).status == 303
        run = guarded.store.runs.get("run-1")
        assert run is not None
        assert run.state == RUN_STATE_PAUSED
        shown = await (await visitor.get("/console/runs/run-1/part")).text()
        assert "/console/runs/run-1/resume" in shown
        assert "/console/runs/run-1/pause" not in shown


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "ftp://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
async def test_forms_of_other_pages_are_refused(guarded: Consoled, headers: Mapping[str, str]) -> None:
    running(guarded)
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(EVALUATOR)
        assert (await visitor.post("/console/runs/run-1/cancel", None, **headers)).status == 403
        assert (await visitor.post("/console/sign-in", {"token": VIEWER.token}, **headers)).status == 403
    run = guarded.store.runs.get("run-1")
    assert run is not None
    assert run.state == RUN_STATE_RUNNING


async def test_every_answer_has_a_strict_policy(console: Consoled) -> None:
    running(console, tenant="")
    async with Browserless(console) as visitor:
        paths = ("", "runs/run-1", "runs/run-1/part", "judges", "nothing", "runs/none", "console.js")
        for path in paths:
            answer = await visitor.get(f"/console/{path}")
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["Referrer-Policy"] == "same-origin"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "no-" in answer.headers["Cache-Control"]


async def test_the_report_is_apart_from_the_console(console: Consoled) -> None:
    running(console, tenant="")
    console.store.samples.take("run-1", [0], "e")
    console.store.attempts.finish("run-1", 1, [judged(0, {"writer": [True]})])
    async with Browserless(console) as visitor:
        answer = await visitor.get("/console/runs/run-1/report")
        assert answer.status == 200
        policy = answer.headers["Content-Security-Policy"]
        assert "sandbox allow-scripts allow-downloads;" in policy
        assert "allow-same-origin" not in policy
        assert "frame-ancestors 'self'" in policy
        assert "writer" in await answer.text()
        shown = await (await visitor.get("/console/runs/run-1")).text()
        assert 'sandbox="allow-scripts allow-downloads"' in shown


async def test_without_sign_in_a_foreign_name_of_this_machine_is_refused(console: Consoled) -> None:
    async with Browserless(console) as visitor:
        assert (await visitor.get("/console/")).status == 200
        assert (await visitor.get("/console/", Host="rebound.example")).status == 421


async def test_without_authentication_it_is_served_on_loopback_alone(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gateway\.console needs authentication"):
        async with serve_console(tmp_path, JUDGES, host="0.0.0.0"):
            pass


async def test_a_form_has_at_most_a_megabyte(guarded: Consoled) -> None:
    async with Browserless(guarded) as visitor:
        assert (await visitor.post("/console/sign-in", {"token": "x" * 2_000_000})).status == 413


async def test_the_first_page_is_that_of_runs(console: Consoled) -> None:
    async with Browserless(console) as visitor:
        answer = await visitor.get("/")
        assert (answer.status, answer.headers["Location"]) == (303, "/console/")


async def test_the_list_says_who_created_a_run_and_is_searched_by_it(guarded: Consoled) -> None:
    for name, creator in (("first", "anna@research"), ("second", "ben@research")):
        finished_run(
            guarded.store, many("scripts", 2), run_id=name, tenant="research", name=name, creator=creator
        )
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(VIEWER)
        listed = await (await visitor.get("/console/")).text()
        assert '<td data-label="Who, when (UTC)"><bdi>anna@research</bdi>' in listed
        found = await (await visitor.get("/console/?q=BEN")).text()
        assert "runs/second" in found
        assert "runs/first" not in found
        assert "by <bdi>ben@research</bdi>" in await (await visitor.get("/console/runs/second")).text()


async def test_an_unknown_state_is_refused_by_name(console: Consoled) -> None:
    async with Browserless(console) as visitor:
        answer = await visitor.get("/console/?state=odd")
        assert answer.status == 400
        assert "no state of a run" in await answer.text()


async def test_shadows_are_listed_and_their_agreement_is_shown(served: Consoled) -> None:
    finished_run(
        served.store,
        [sample(0, "t0", candidate("x", PASS, FAIL)), sample(1, "t1", candidate("y", FAIL, FAIL))],
    )
    async with Browserless(served) as visitor:
        assert "/console/runs/run/shadows" in await (await visitor.get("/console/runs/run")).text()
        shown = await (await visitor.get("/console/runs/run/shadows")).text()
        assert "50.0 %" in shown
        assert 'aria-label="Agreement by criterion"' in shown
        assert "adequacy" in shown
    judge = judge_view(Judge(name="b", role="critic", shadow=JudgeShadow(of="a", model="small")))
    assert (judge.shadow_of, judge.certificate) == ("a with small", "")


def test_the_drift_of_a_judge_is_shown() -> None:
    judge = Judge(name="b", role="critic", monitor=JudgeMonitor(anchor_count=50, detectable_count=5))
    assert judge_view(judge).drift.startswith("no check yet; next 1970")
    judge.monitor.check_count = 3
    judge.monitor.last_check.compared_count = 50
    assert judge_view(judge).drift == "none in 3 checks; last 1970-01-01 00:00 UTC: 0 of 50 changed"
    judge.monitor.last_check.compared_count = 40
    assert judge_view(judge).drift.endswith("0 of 40 changed, 10 without answers")
    judge.monitor.last_check.error = "it is down"
    assert judge_view(judge).drift == "check failed (1970-01-01 00:00 UTC): it is down"
    judge.monitor.drift.changed_count, judge.monitor.drift.compared_count = 9, 50
    assert judge_view(judge).drift.startswith("drifted: 9 of 50 candidates")
    assert not judge_view(judge).built_in
    judge.health = JUDGE_HEALTH_QUARANTINED
    assert judge_view(judge).health == "in quarantine: not called"


def test_the_properties_of_a_certificate_are_on_the_page_of_its_judge() -> None:
    measured = CertifiedProperty(
        name="self-preference",
        figure="choices <b>",
        conclusion=PROPERTY_CONCLUSION_OUTSIDE,
        tolerance=0.1,
        value=0.5,
        lower=0.4,
        upper=0.6,
        case_count=40,
    )
    untested = CertifiedProperty(name="injection", conclusion=PROPERTY_CONCLUSION_NOT_APPLICABLE)
    certificate = JudgeCertificate(properties=[measured, untested])
    panel = JudgePanel(members=[PanelMember(judge="a"), PanelMember(judge="c")])
    judge = Judge(name="b", role="critic", certificate=certificate, panel=panel)
    first, second = judge_view(judge).properties
    assert (first.style, first.value, first.bounds, first.cases) == ("fail", "0.500", "0.400 to 0.600", "40")
    assert (second.style, second.conclusion, second.value, second.bounds) == (
        "abstain",
        "not applicable",
        "",
        "",
    )
    page = render(
        "judge.html.j2",
        one=judge_view(judge),
        others=[],
        agreement=None,
        outcomes=None,
        problems=[],
        may_register=False,
        may_write=False,
        target="localhost:1",
        links=[],
        path="",
        authenticates=False,
    )
    assert 'data-label="Bounds">0.400 to 0.600<' in page
    assert "choices &lt;b&gt;" in page
    # A panel has no monitor.
    assert "judges monitor" not in page


def test_a_certificate_is_shown_with_what_has_changed_since() -> None:
    tested = [
        CertifiedProperty(name=name, conclusion=PROPERTY_CONCLUSION_OUTSIDE)
        for name in ("position", "verbosity")
    ]
    certificate = JudgeCertificate(
        properties=[*tested, CertifiedProperty(name="injection", conclusion=PROPERTY_CONCLUSION_WITHIN)]
    )
    certificate.measure_time.FromJsonString("2026-01-02T03:04:05Z")
    judge = Judge(name="b", role="critic", certificate=certificate, certificate_changes=["version 1, now 2"])
    assert judge_view(judge).certificate == "1 within, 2 outside (2026-01-02)"
    page = render(
        "judges.html.j2",
        roles=[("critic", [judge_view(judge)])],
        built_in=[],
        checked=False,
        may_register=False,
        links=[],
        path="",
        authenticates=False,
    )
    assert '<div class="fail">stale</div><div class="note text">version 1, now 2</div>' in page


async def test_judges_that_are_configured_and_serve_are_counted_in_a_fold(tmp_path: Path) -> None:
    async with AlignmentApp().open() as contracts, serve(*contracts) as alignment:
        entry = JudgeEntry(role="alignment", name="statistics", target=alignment.target)
        async with serve_console(tmp_path, [entry]) as console, Browserless(console) as visitor:
            shown = await (await visitor.get("/console/judges")).text()
    assert "<summary>1 configured judge, all serving</summary>" in shown


async def test_a_run_without_shadows_says_so(served: Consoled) -> None:
    finished_run(served.store, many("scripts", 2))
    async with Browserless(served) as visitor:
        assert "has a shadow" in await (await visitor.get("/console/runs/run/shadows")).text()
        assert "/console/runs/run/shadows" not in await (await visitor.get("/console/runs/run")).text()


async def test_shadows_without_a_verdict_are_said_with_the_reasons(served: Consoled) -> None:
    finished_run(served.store, [sample(0, "t0", candidate("x", PASS, ABSTAIN))])
    async with Browserless(served) as visitor:
        shown = await (await visitor.get("/console/runs/run/shadows")).text()
        assert "has no verdict to compare on 1 items: timed out 1." in shown
        assert "No judge of this run" not in shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("the first 3 samples failed (CALL_REJECTED)", "the first 3 samples failed (call rejected)"),
        ("failed with FAILED_PRECONDITION (ERROR_REASON_MODEL_UNKNOWN): set A_KEY", "failed: set A_KEY"),
        ("the key (OPENAI_API_KEY) is wrong", "the key (OPENAI_API_KEY) is wrong"),
        ("failed with UNAVAILABLE: no connection", "failed: no connection"),
        (
            "9 of 12 abstained (NOT_SUPPORTED 8, LOW_CONFIDENCE 1)",
            "9 of 12 abstained (not supported 8, low confidence 1)",
        ),
    ],
)
def test_reasons_are_shown_without_the_names_of_codes(said: str, shown: str) -> None:
    assert in_words(said) == shown


async def test_label_sets_name_their_runs_which_are_read_in_one_call(
    guarded: Consoled, caplog: pytest.LogCaptureFixture
) -> None:
    runs = ("run", "second", "third")
    for run in runs:
        finished_run(guarded.store, many("scripts", 2), run_id=run, tenant="research")
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(EVALUATOR)
        for run in runs:
            await visitor.post("/console/labels", {"run": run, "sample_size": "2"})
        with caplog.at_level(logging.INFO, "dramaturg.access"):
            shown = await (await visitor.get("/console/labels")).text()
    for run in runs:
        assert f'<a href="/console/runs/{run}"><bdi>a run</bdi></a>' in shown
    calls = [
        one.__dict__["fields"]["method"].rpartition("/")[2] for one in caplog.records if one.message == "call"
    ]
    assert sorted(calls) == ["ListLabelSets", "ListRuns"]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("b against a: go; a task may lose 1", "new against old: go; a task may lose 1"),
        ("b against a in topic b: no-go", "new against old in topic b: no-go"),
        ("The judges differ", "The judges differ"),
    ],
)
def test_reasons_of_the_gate_have_the_names_of_runs(reason: str, shown: str) -> None:
    assert named_reason(reason, {"a": "old", "b": "new"}) == shown


async def test_runs_are_compared_within_a_tenant(guarded: Consoled) -> None:
    finished_run(guarded.store, many("scripts", 2), tenant="research")
    finished_run(guarded.store, many("scripts", 2), run_id="later", tenant="research")
    finished_run(guarded.store, many("pair", 2), run_id="pairs", tenant="research")
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(VIEWER)
        listed = await (await visitor.get("/console/runs/later/compare")).text()
        assert "baseline=run&amp;run=later" in listed
        assert "pairs" not in listed
        assert (await visitor.get("/console/compare?baseline=run&run=run")).status == 400
        assert (await visitor.get("/console/compare?run=run")).status == 400
        await visitor.sign_in(STRANGER)
        assert (await visitor.get("/console/runs/later/compare")).status == 404
        assert (await visitor.get("/console/compare?baseline=run&run=later")).status == 404
        assert (await visitor.get("/console/compare/report?baseline=run&run=later")).status == 404


async def test_labelling_is_for_who_may_write(guarded: Consoled) -> None:
    finished_run(guarded.store, many("scripts", 2), tenant="research")
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(VIEWER)
        assert "Label a sample" not in await (await visitor.get("/console/runs/run")).text()
        assert (await visitor.post("/console/labels", {"run": "run"})).status == 403
        await visitor.sign_in(EVALUATOR)
        created = await visitor.post("/console/labels", {"run": "run", "sample_size": "2"})
        assert created.status == 303
        address = created.headers["Location"]
        await visitor.post(f"{address}/queue", {"annotator": "ann", "position": "0", "label": "PASS"})
        await visitor.sign_in(STRANGER)
        for path in (address, f"{address}/queue?annotator=a", f"{address}/labels.csv"):
            assert (await visitor.get(path)).status == 404
        await visitor.sign_in(VIEWER)
        shown = await (await visitor.get(address)).text()
        assert "1 of 2" in shown
        assert "Delete" not in shown
        for path in (f"{address}/queue?annotator=a", "/console/labels/new?run=run", "/console/evaluate/pair"):
            page = await (await visitor.get(path)).text()
            assert "<button" not in page.partition("<main")[2], path
            assert "Your role may not" in page


def upload(data: bytes, name: str = "rows.csv", **fields: str) -> aiohttp.FormData:
    form = aiohttp.FormData(fields)
    form.add_field("file", data, filename=name)
    return form


async def test_who_may_not_write_starts_no_run(guarded: Consoled) -> None:
    answers = (ROOT / "examples" / "texts" / "answers.csv").read_bytes()
    async with Browserless(guarded) as visitor:
        await visitor.sign_in(VIEWER)
        page = await (await visitor.get("/console/runs/new")).text()
        assert "Your role may not start runs" in page
        assert 'type="file"' not in page
        rows = upload(answers, rubric="builtin:relevance")
        assert (await visitor.post_form("/console/runs/new", rows)).status == 400
        await visitor.sign_in(EVALUATOR)
        assert (await visitor.post_form("/console/runs/new", upload(b"x" * (17 << 20)))).status == 413
        foreign = upload(answers)
        refused = await visitor.post_form("/console/runs/new", foreign, Origin="https://evil.example")
        assert refused.status == 403
        assert (await visitor.post("/console/runs/new", {"rubric": "own"})).status == 415
