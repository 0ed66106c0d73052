"""The examples of docs/operate/security.md are what the settings take; its numbers are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.label_service_pb2 import CreateLabelSetRequest
from dramaturg.datasets import source
from dramaturg.judge import provenance
from dramaturg.judge.protocols import MAX_ANSWER_BYTES, MAX_CALL_TOKENS
from dramaturg.judge.streams import MAX_UNREQUESTED
from dramaturg.service import logs, server, threads
from dramaturg.service.auth.guard import Identities, StaticTokens
from dramaturg.service.auth.settings import ROLES, AuthSettings
from dramaturg.service.interceptors import chain as unread
from dramaturg.service.interceptors import limits
from dramaturg.service.validation import limits_of
from gateway.console import console, sessions, visit
from gateway.evaluations import judge_answers
from gateway.evaluations.scripts import reading
from gateway.http import bodies
from gateway.http.settings import HttpSettings
from gateway.judges import identity
from gateway.processes import pool, process
from gateway.quotas import gate, spending, turns
from gateway.quotas.settings import QuotaSettings
from gateway.runs import dataset_process, estimator, store_calls
from gateway.runs.engine import orchestrator, parts
from gateway.runs.labels import servicer as labels
from gateway.runs.service import pages, preflight, report_cache
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from tests.support.command_line import ROOT

TEXT = (ROOT / "docs" / "operate" / "security.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


SETS = limits_of(CreateLabelSetRequest.DESCRIPTOR.fields_by_name["sample_size"])
PROCESSES = GatewaySettings.model_fields["worker_processes"].default
NUMBERS = (
    f"a row {source.MAX_LINE_BYTES >> 20} MiB decoded",
    f"{process.CPU_SECONDS // 60} minutes of processor time; three deaths",
    f"a form {visit.MAX_FORM_BYTES >> 20} MiB and {visit.MAX_FIELDS} fields",
    f"{console._SIGN_IN_BYTES >> 10} KiB before the sign-in",
    f"1 session of a visitor, {sessions.MAX_SESSIONS:,} in all",
    f"the time of the last one of {sessions.MAX_SESSIONS:,} visitors",
    f"without an identity can cause, each kind has {logs.REFUSALS_A_SECOND} lines a second",
    f"without an identity have {logs.REFUSALS_A_SECOND} lines a second",
    f"{SETS.maximum:,g} items and {labels.MAX_SET_BYTES >> 20} MiB a set",
    f"a set, {labels.MAX_ANNOTATORS} annotators",
    f"{store_calls._READ_THREADS} for short reads of the store",
    f"short reads of the store, {store_calls._READ_THREADS_PER_TENANT} of one tenant",
    f"{threads.THREADS} threads of a judge or of the generation service",
    f"{reading.PARSER_PROCESSES} processes of lower priority of a gateway",
    f"other tenants within the last {turns.RECENT_SECONDS:g} s",
    f"computed for at most {turns.SHARE:g} of the time since the last start",
    f"since the last start, or after {parts.MAX_WAIT_SECONDS:g} s",
    f"took at most {turns.SHARE:g} of the time since it started, or after {gate.MAX_TURN_SECONDS:g} s",
    f"one with a page, after {gate.MAX_LARGE_TURN_SECONDS:g} s, each method by itself; {turns.MAX_WAITING:,}",
    f"the thread of a long page computes for {turns.SHARE:g} of the time",
    f"datasets of more than {dataset_process.SMALL_ROWS:,} lines",
    f"hands the interpreter on after {server.SWITCH_SECONDS * 1000:g} ms",
    f"{preflight.READ_BYTES >> 20} MiB, {preflight.READ_BLANK_LINES:,} blank lines",
    f"blank lines and {preflight.READ_CPU_SECONDS} s of processor time for `CreateRun`",
    f"{estimator.READ_CPU_SECONDS} s for `EstimateRun`",
    f"more than {MAX_UNREQUESTED} answers of a stream",
    f"{pages.MAX_PAGE_BYTES >> 20} MiB a page, {limits.MAX_RESPONSES_OF_TENANT} pages of one tenant",
    f"pages of one tenant of a method built or not yet received, {limits.MAX_RESPONSES} of all",
    f"`gateway.worker_processes` ({PROCESSES}) of lower priority",
    f"{pool.MAX_STALL_SECONDS:g} s of waiting for the caller",
    f"as of up to {spending._CACHE_SECONDS:g} seconds ago",
    f"{report_cache.MAX_BUILDS} built at once, {report_cache.MAX_BYTES >> 20} MiB",
    f"dropped undecoded: {unread.MAX_BYTES >> 20} MiB, {unread.MAX_SECONDS:g} seconds",
    f"{unread.MAX_CALLS} calls at once, {unread.MAX_UNAUTHENTICATED_CALLS} of unauthenticated callers",
    f"{bodies.MAX_JSON_VALUES:,} values of a JSON body",
    f"more than {MAX_ANSWER_BYTES >> 10} KiB about one candidate",
    f"to {judge_answers.MAX_TEXT_CHARACTERS:,}, then to {judge_answers.SHORT_TEXT_CHARACTERS} characters",
    f"lists to {judge_answers.MAX_ELEMENTS} elements",
    f"above {judge_answers.MAX_COST_USD:,.0f} USD or above {MAX_CALL_TOKENS:,} tokens",
    f"the first {identity.MAX_CRITERIA} criteria, capabilities and limits",
    f"of up to {identity.MAX_NAME_CHARACTERS} characters count",
    f"other texts are cut to {identity.MAX_TEXT_CHARACTERS}",
)
"""Limits as the tables of bounds and of answers state them."""


@pytest.mark.parametrize("number", NUMBERS)
def test_a_limit_that_is_named_is_that_of_the_code(number: str) -> None:
    assert number in TEXT


def test_numbers_in_words_are_those_of_the_code() -> None:
    assert orchestrator.MAX_DEATHS == 3
    assert orchestrator.MAX_CONCURRENT_DATASETS == 2
    assert provenance.MAX_AMOUNT == 10**12
    assert judge_answers.MAX_LATENCY_SECONDS == 24 * 3600


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    file = tmp_path / "dramaturg.toml"
    file.write_text(example)
    tables = tomllib.loads(example).keys()
    monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
    if "tokens" in tables:
        StaticTokens(file)
    elif "auth" in tables:
        settings = AuthSettings()
        assert settings.enabled
        Identities(settings.identities)
    else:
        assert tables == {"quotas"}
        assert QuotaSettings().of("research").max_active_runs == 20
        assert QuotaSettings().of("another").max_active_runs == 5


def test_the_table_of_roles_is_true() -> None:
    header = re.search(r"^\| role \|( evaluate .+)\|$", TEXT, re.MULTILINE)
    assert header is not None
    permissions = [cell.strip() for cell in header[1].split("|")]
    for role, may in ROLES.items():
        row = re.search(rf"^\| {role} \|(.+)\|$", TEXT, re.MULTILINE)
        assert row is not None, role
        crosses = [cell.strip() for cell in row[1].split("|")]
        assert {name for name, cross in zip(permissions, crosses, strict=True) if cross} == may


def test_every_variable_that_is_named_exists() -> None:
    from dramaturg.service.settings import ChannelSettings, ServerSettings
    from services.embedding.settings import EmbeddingSettings

    known = {
        kind.variable(field)
        for kind in (AuthSettings, ChannelSettings, EmbeddingSettings, RunsSettings, ServerSettings)
        for field in kind.model_fields
    } | {f"{GatewaySettings.variable('http')}__{field.upper()}" for field in HttpSettings.model_fields}
    assert set(re.findall(r"DRAMATURG_[A-Z_0-9]+", TEXT)) <= known
