"""Judges that are registered at run time, as callers of gateways see them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.evaluation.v1 import judge_directory_service_pb2, judge_directory_service_pb2_grpc
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    PANEL_RULE_ANY_FAIL,
    PANEL_RULE_WEIGHTED,
    VERSION_POLICY_PAUSE,
    JudgeConnection,
    JudgeHealth,
    JudgePanel,
    JudgeRegistration,
    JudgeRetry,
    JudgeShadow,
    PanelMember,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.client import DramaturgClient
from dramaturg.service.auth import audit
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ChannelSettings, ServerSettings
from dramaturg.testing import serve
from gateway.app import App
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registrations import JudgeRegistrations
from gateway.judges.registry import open_registry
from gateway.quotas.settings import QuotaSettings
from gateway.runs.settings import RunsSettings
from gateway.runs.store import open_reader, open_store, tables
from gateway.servicer import JudgeDirectoryServicer
from gateway.settings import GatewaySettings, JudgeEntry
from tests.support.auth import Holder, holder, token_settings
from tests.support.certificates import Authority
from tests.support.engines import judges_of
from tests.support.gateway import (
    Fake,
    agents,
    evaluate_result,
    scripts_request,
    until_read,
)

ALICE, BOB = holder("team-a", "operator"), holder("team-b", "operator")
EVALUATOR = holder("team-a", "evaluator")
UNFIT_HEADERS = (
    *("X Y", "X-Key", "x-bin", "-bin", "x-token-bin", ":authority", "clé", "x\n", "x" * 101),
    *("content-type", "te", "host", "user-agent", "connection", "x-request-id", "traceparent"),
    *("grpc-timeout", "grpc-encoding", "x-dramaturg-tenant", "x-dramaturg-peer"),
)
"""Keys of metadata that carry no token."""
LOOPBACK = ("127.0.0.1:*", "localhost:*")
UNFIT_NAMES = (
    *("Fake", "FAKE", "f-ake", "fa_ke", "fake.", "F.a-K_e"),
    *(
        "fаke",
        "ｆａｋｅ",
        "fake\u200b",
        "\u202efake",
        "fa ke",
        "fake ",
        "fake\n",
        "🎭",
        ".fake",
        "-fake",
        "<b>",
    ),
)
"""Names that look like that of a configured judge, or that are no names."""
Settings = dict[str, Any]


@asynccontextmanager
async def gateway(
    store: str,
    *,
    auth: Any = None,
    server: ServerSettings | None = None,
    fakes: list[Fake] | None = None,
    quotas: QuotaSettings | None = None,
    **settings: Any,
) -> AsyncIterator[str]:
    """A gateway on a store; its address."""
    given: Settings = {"judge_targets": LOOPBACK, "judges_poll_seconds": 0.05, "identity_timeout_seconds": 1}
    async with AsyncExitStack() as stack:
        judges = await stack.enter_async_context(judges_of(agents() if fakes is None else fakes))
        runs = RunsSettings(enabled=True, url=store, drain_timeout_seconds=0.2)
        app = App(GatewaySettings(judges=tuple(judges), **{**given, **settings}), runs, quotas)
        contracts = await stack.enter_async_context(app.open())
        serving = server or ServerSettings.loopback(drain_grace_seconds=0.2)
        yield (await stack.enter_async_context(Server(contracts, serving, auth))).target


@asynccontextmanager
async def directory(store_url: str) -> AsyncIterator[str]:
    """The directory of a gateway without its runs, of which a process has one engine; its address."""
    settings = GatewaySettings(judge_targets=LOOPBACK, judges_poll_seconds=0.05)
    async with AsyncExitStack() as stack:
        entries = await stack.enter_async_context(judges_of(agents()))
        registry = await stack.enter_async_context(open_registry(entries, 4))
        store = open_store(store_url)
        stack.callback(store.close)
        registrations = JudgeRegistrations(registry, settings)
        await stack.enter_async_context(registrations.persisted(store))
        contract = Contract.make(
            judge_directory_service_pb2.DESCRIPTOR.services_by_name["JudgeDirectoryService"],
            judge_directory_service_pb2_grpc.add_JudgeDirectoryServiceServicer_to_server,
            JudgeDirectoryServicer(registry, JudgeDirectory(timeout=1), registrations),
            name="gateway",
            version="1.0.0",
            description="Judges.",
        )
        yield (await stack.enter_async_context(serve(contract, drain_grace_seconds=0.2))).target


async def names(client: DramaturgClient, role: str = "critic") -> list[str]:
    return [judge.name for judge in await client.list_judges(role)]


def fields_of(error: ServiceError) -> list[str]:
    return [violation.field for violation in error.violations]


async def test_a_judge_is_registered_used_changed_and_removed(each_store_url: str) -> None:
    asked: list[Any] = []
    broken = False

    async def note(request: Any) -> Any:
        asked.append(request)
        answer = await Fake("critic").respond(request)
        if broken:
            del answer.verdicts[:]
        return answer

    async with (
        serve(Fake("critic", note).contract()) as theirs,
        gateway(each_store_url, quarantine_breaches=2) as target,
        DramaturgClient(target) as client,
    ):
        wanted = JudgeRegistration(
            role="critic", name="theirs", target=theirs.target, owner="team-a", labels={"tier": "external"}
        )
        judge = await client.register_judge(wanted)
        assert judge.health == JudgeHealth.JUDGE_HEALTH_SERVING
        assert (judge.identity.name, judge.owner) == ("fake-critic", "team-a")
        assert not judge.default_for_role
        assert judge.registration == wanted
        assert await names(client) == ["fake", "theirs"]
        request = scripts_request(1, judges=[JudgeSelection(role="critic", judge="theirs")])
        result = await evaluate_result(client, request)
        assert len(asked) == 1
        critic = next(one for one in result.candidates[0].assessments if one.role == "critic")
        assert (critic.judge, critic.assessment.provenance.version) == ("theirs", "1.0.0")

        changed = await client.update_judge(
            JudgeRegistration(role="critic", name="theirs", expected_version=">=2", owner="")
        )
        assert changed.health == JudgeHealth.JUDGE_HEALTH_WRONG_VERSION
        assert (changed.owner, dict(changed.labels)) == ("team-a", {"tier": "external"})
        changed = await client.update_judge(
            JudgeRegistration(role="critic", name="theirs", version_policy=VERSION_POLICY_PAUSE),
            ["owner", "expected_version", "labels", "version_policy"],
        )
        assert changed.registration == JudgeRegistration(
            role="critic", name="theirs", target=theirs.target, version_policy=VERSION_POLICY_PAUSE
        )
        assert changed.health == JudgeHealth.JUDGE_HEALTH_SERVING

        broken = True
        for _ in range(2):
            await evaluate_result(client, request)
        listed = await client.check_judge("critic", "theirs")
        assert listed.health == JudgeHealth.JUDGE_HEALTH_QUARANTINED
        changed = await client.update_judge(JudgeRegistration(role="critic", name="theirs", owner="b"))
        assert changed.health == JudgeHealth.JUDGE_HEALTH_SERVING

        await client.remove_judge("critic", "theirs")
        assert await names(client) == ["fake"]
        with pytest.raises(ServiceError) as unknown:
            await evaluate_result(client, request)
        assert unknown.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN
        with pytest.raises(ServiceError) as absent:
            await client.remove_judge("critic", "theirs")
        assert absent.value.code is grpc.StatusCode.NOT_FOUND


async def test_every_gateway_of_a_store_sees_a_registered_judge(postgres_url: str) -> None:
    async with (
        serve(Fake("critic").contract()) as theirs,
        directory(postgres_url) as first,
        directory(postgres_url) as second,
        DramaturgClient(first) as client,
        DramaturgClient(second) as other,
    ):
        await client.register_judge(JudgeRegistration(role="critic", name="theirs", target=theirs.target))
        await until_read(lambda: names(other), ["fake", "theirs"])
        await other.update_judge(JudgeRegistration(role="critic", name="theirs", owner="b"))

        async def owner() -> str:
            return (await client.check_judge("critic", "theirs")).owner

        await until_read(owner, "b")
        await other.remove_judge("critic", "theirs")
        await until_read(lambda: names(client), ["fake"])


async def test_a_registered_judge_is_kept_by_the_store(each_store_url: str) -> None:
    async with gateway(each_store_url) as target, DramaturgClient(target) as client:
        await client.register_judge(JudgeRegistration(role="critic", name="theirs", target="127.0.0.1:1"))
    async with gateway(each_store_url) as target, DramaturgClient(target) as client:
        assert await names(client) == ["fake", "theirs"]
    # A judge of the configuration has its name to itself.
    fakes = [*agents(), Fake("critic", name="theirs")]
    async with gateway(each_store_url, fakes=fakes) as target, DramaturgClient(target) as client:
        judge = await client.check_judge("critic", "theirs")
        assert judge.health == JudgeHealth.JUDGE_HEALTH_SERVING
        assert not judge.HasField("registration")


async def test_tenants_see_their_own_judges_alone(tmp_path: Path) -> None:
    callers: list[Holder] = [ALICE, BOB, EVALUATOR]
    log = tmp_path / "audit.jsonl"
    auth = token_settings(tmp_path, *callers)
    audit.configure(str(log))
    async with AsyncExitStack() as stack:
        stack.callback(audit.configure, "")
        target = await stack.enter_async_context(
            gateway(f"sqlite:///{tmp_path}/runs.sqlite3", auth=auth, max_registered_judges=1)
        )
        alice, bob, evaluator = [
            await stack.enter_async_context(
                DramaturgClient(target, ChannelSettings(token_file=token_of(tmp_path, caller)))
            )
            for caller in callers
        ]
        mine = JudgeRegistration(role="critic", name="theirs", target="127.0.0.1:1")
        await alice.register_judge(mine)
        assert await names(alice) == await names(evaluator) == ["fake", "theirs"]
        assert await names(bob) == ["fake"]
        for refused in (
            bob.check_judge("critic", "theirs"),
            bob.remove_judge("critic", "theirs"),
            bob.update_judge(mine),
            evaluate_result(bob, scripts_request(1, judges=[JudgeSelection(role="critic", judge="theirs")])),
        ):
            with pytest.raises(ServiceError):
                await refused
        # The name is free for the other tenant.
        await bob.register_judge(JudgeRegistration(role="critic", name="theirs", target="127.0.0.1:2"))
        assert (await alice.check_judge("critic", "theirs")).target == "127.0.0.1:1"
        with pytest.raises(ServiceError) as full:
            await alice.register_judge(JudgeRegistration(role="critic", name="more", target="127.0.0.1:1"))
        assert full.value.reason == error_reason_pb2.ERROR_REASON_QUOTA_EXHAUSTED
        with pytest.raises(ServiceError) as denied:
            await evaluator.remove_judge("critic", "theirs")
        assert denied.value.code is grpc.StatusCode.PERMISSION_DENIED
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    written = [
        (line["principal"], line["method"].rpartition("/")[2], line["judge"], line["outcome"])
        for line in lines
        if line["method"].endswith(("RegisterJudge", "RemoveJudge"))
    ]
    assert written == [
        ("operator@team-a", "RegisterJudge", "critic=theirs", "OK"),
        ("operator@team-b", "RemoveJudge", "critic=theirs", "NOT_FOUND"),
        ("operator@team-b", "RegisterJudge", "critic=theirs", "OK"),
        ("operator@team-a", "RegisterJudge", "critic=more", "RESOURCE_EXHAUSTED"),
        ("evaluator@team-a", "RemoveJudge", "critic=theirs", "PERMISSION_DENIED"),
    ]


def token_of(folder: Path, who: Holder) -> Path:
    file = folder / f"{who.tenant}-{who.roles[0]}.token"
    file.write_text(who.token)
    return file


NOT_PERMITTED: list[tuple[dict[str, Any], str]] = [
    ({"target": "10.0.0.1:50051"}, "judge.target"),
    ({"target": "unix:/run/other"}, "judge.target"),
    ({"target": ""}, "judge.target"),
    ({"role": "author"}, "judge.role"),
    ({"role": "poet"}, "judge.role"),
    ({"expected_version": ">="}, "judge.expected_version"),
    ({"connection": JudgeConnection(token_file="token")}, "judge.connection.token_file"),
    ({"connection": JudgeConnection(certificate_file="../a")}, "judge.connection.certificate_file"),
    *(
        ({"connection": JudgeConnection(token_header=header)}, "judge.connection.token_header")
        for header in UNFIT_HEADERS
    ),
    *(({"name": name}, "judge.name") for name in UNFIT_NAMES),
]
"""Fields of registrations that are refused, and the field that the error names."""


async def test_a_registration_that_is_not_permitted_is_refused(sqlite_url: str) -> None:
    async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
        for fields, violated in NOT_PERMITTED:
            given: dict[str, Any] = {"role": "critic", "name": "a", "target": "127.0.0.1:1", **fields}
            with pytest.raises(ServiceError) as caught:
                await client.register_judge(JudgeRegistration(**given))
            assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT, fields
            assert set(fields_of(caught.value)) == {violated}, fields
            assert await names(client) == ["fake"], fields


async def test_a_token_header_changes_to_a_fit_one_alone(sqlite_url: str) -> None:
    async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
        judge = JudgeRegistration(role="critic", name="a", target="127.0.0.1:1")
        await client.register_judge(judge)
        for header in UNFIT_HEADERS:
            judge.connection.token_header = header
            with pytest.raises(ServiceError) as caught:
                await client.update_judge(judge)
            assert fields_of(caught.value) == ["judge.connection.token_header"]
        judge.connection.token_header = "x-api-key"
        await client.update_judge(judge)


@pytest.mark.parametrize("length", [7_000, 7_001])
async def test_a_token_that_servers_would_not_take_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "token").write_text("x" * length)
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    connection = JudgeConnection(token_file="token", token_header="x-api-key")
    async with (
        serve(Fake("critic").contract()) as theirs,
        gateway(url, judge_credentials_dir=tmp_path) as target,
        DramaturgClient(target) as client,
    ):
        judge = JudgeRegistration(role="critic", name="a", target=theirs.target, connection=connection)
        if length <= 7_000:
            assert (await client.register_judge(judge)).health == JudgeHealth.JUDGE_HEALTH_SERVING
        else:
            with pytest.raises(ServiceError, match="7000"):
                await client.register_judge(judge)


def stored(url: str, *judges: JudgeRegistration) -> None:
    """Stores registrations that no gateway has checked, as one of another version may have."""
    store = open_store(url)
    for judge in judges:
        assert store.registrations.add("", judge, 100)
    store.close()


def damage(url: str, name: str) -> None:
    """Replaces a stored registration by bytes that are none."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        changed = tables.judges.update().where(tables.judges.c.name == name).values(registration=b"\xff\xff")
        assert connection.execute(changed).rowcount == 1
    engine.dispose()


UNKNOWN: Any = 99
FAULTY: list[tuple[JudgeRegistration, str]] = [
    (
        JudgeRegistration(
            name="header", target="127.0.0.1:1", connection=JudgeConnection(token_header="x-bin")
        ),
        "token_header",
    ),
    (
        JudgeRegistration(name="file", target="127.0.0.1:1", connection=JudgeConnection(token_file="token")),
        "judge_credentials_dir",
    ),
    (JudgeRegistration(name="address"), "target"),
    (JudgeRegistration(name="version", target="127.0.0.1:1", expected_version=">="), "expected_version"),
    (JudgeRegistration(name="policy", target="127.0.0.1:1", version_policy=UNKNOWN), "99"),
    (
        JudgeRegistration(
            name="rule",
            panel=JudgePanel(rule=UNKNOWN, members=[PanelMember(judge="fake"), PanelMember(judge="x")]),
        ),
        "99",
    ),
    (
        JudgeRegistration(
            name="weights",
            panel=JudgePanel(
                rule=PANEL_RULE_WEIGHTED,
                members=[PanelMember(judge="fake", weight=math.nan), PanelMember(judge="x", weight=-1)],
            ),
        ),
        "weight",
    ),
    (JudgeRegistration(name="one", panel=JudgePanel(members=[PanelMember(judge="fake")])), "members"),
    (
        JudgeRegistration(name="itself", target="127.0.0.1:1", shadow=JudgeShadow(of="itself")),
        "shadow of itself",
    ),
    (JudgeRegistration(name="retries", target="127.0.0.1:1", retry=JudgeRetry(attempts=1000)), "attempts"),
    (JudgeRegistration(role="gone", name="role", target="127.0.0.1:1"), "no role 'gone'"),
    (JudgeRegistration(name="damaged", target="127.0.0.1:1"), "target"),
]
"""Registrations that cannot be used, and a word of their state; "damaged" is stored as other bytes."""


async def test_a_faulty_judge_is_one_faulty_row(sqlite_url: str) -> None:
    """All else of its tenant works, also after a restart; it can be changed and removed."""
    for judge, _ in FAULTY:
        judge.role = judge.role or "critic"
    async with serve(Fake("critic").contract()) as theirs:
        good = JudgeRegistration(role="critic", name="good", target=theirs.target)
        stored(sqlite_url, *(judge for judge, _ in FAULTY), good)
        damage(sqlite_url, "damaged")
        for _ in range(2):
            async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
                listed = {judge.name: judge for judge in await client.list_judges()}
                assert listed["good"].health == JudgeHealth.JUDGE_HEALTH_SERVING
                for faulty, words in FAULTY:
                    row = listed[faulty.name]
                    assert row.health == JudgeHealth.JUDGE_HEALTH_NOT_SERVING, faulty.name
                    assert words in row.error, faulty.name
                    assert row.registration.name == faulty.name
                    assert await client.check_judge(faulty.role, faulty.name) == row
                    if faulty.role == "critic":
                        chosen = JudgeSelection(role="critic", judge=faulty.name)
                        with pytest.raises(ServiceError, match="registration cannot be used") as unknown:
                            await evaluate_result(client, scripts_request(1, judges=[chosen]))
                        assert unknown.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN
                selected = JudgeSelection(role="critic", judge="good")
                result = await evaluate_result(client, scripts_request(1, judges=[selected]))
                assert {one.outcome for one in result.candidates[0].verdicts} == {verdict_pb2.OUTCOME_PASS}
                await client.register_judge(
                    JudgeRegistration(role="critic", name="new", target=theirs.target)
                )
                await client.remove_judge("critic", "new")
        async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
            for faulty, _ in FAULTY:
                if faulty.role == "critic":
                    mended = JudgeRegistration(role="critic", name=faulty.name, target=theirs.target)
                    changed = await client.update_judge(mended, ["*"])
                    assert (changed.health, changed.error) == (JudgeHealth.JUDGE_HEALTH_SERVING, "")
                await client.remove_judge(faulty.role, faulty.name)
                assert faulty.name not in [judge.name for judge in await client.list_judges()]


async def test_a_judge_whose_file_comes_back_is_used_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.sqlite3"
    async with serve(Fake("critic").contract()) as theirs:
        connection = JudgeConnection(token_file="token")
        stored(url, JudgeRegistration(role="critic", name="a", target=theirs.target, connection=connection))
        async with (
            gateway(url, judge_credentials_dir=tmp_path) as target,
            DramaturgClient(target) as client,
        ):
            row = await client.check_judge("critic", "a")
            assert row.health == JudgeHealth.JUDGE_HEALTH_NOT_SERVING
            assert "token cannot be read" in row.error
            assert str(tmp_path) not in row.error
            (tmp_path / "token").write_text("k-123")

            async def health() -> int:
                return (await client.check_judge("critic", "a")).health

            await until_read(health, JudgeHealth.JUDGE_HEALTH_SERVING)


async def test_a_member_of_a_panel_does_not_become_a_panel_nor_a_shadowed_judge_a_shadow(
    sqlite_url: str,
) -> None:
    async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
        for name in ("a", "b", "c"):
            await client.register_judge(JudgeRegistration(role="critic", name=name, target="127.0.0.1:1"))
        await client.register_judge(
            JudgeRegistration(role="critic", name="of-c", target="127.0.0.1:1", shadow=JudgeShadow(of="c"))
        )
        await client.register_judge(JudgeRegistration(role="critic", name="both", panel=panel("a", "b")))
        with pytest.raises(ServiceError, match="member of both") as caught:
            await client.update_judge(
                JudgeRegistration(role="critic", name="a", panel=panel("b", "c")), ["*"]
            )
        assert fields_of(caught.value) == ["judge.panel"]
        shadow = JudgeRegistration(role="critic", name="c", target="127.0.0.1:1", shadow=JudgeShadow(of="a"))
        with pytest.raises(ServiceError, match="of-c shadows") as caught:
            await client.update_judge(shadow)
        assert fields_of(caught.value) == ["judge.shadow"]


async def test_a_panel_whose_member_has_become_a_panel_is_listed(sqlite_url: str) -> None:
    stored(
        sqlite_url,
        JudgeRegistration(role="critic", name="inner", panel=panel("fake", "fake-two")),
        JudgeRegistration(role="critic", name="outer", panel=panel("fake", "inner")),
    )
    async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
        outer = {judge.name: judge for judge in await client.list_judges()}["outer"]
        assert outer.health == JudgeHealth.JUDGE_HEALTH_NOT_SERVING
        assert "inner absent" in outer.error


def panel(*members: str) -> JudgePanel:
    return JudgePanel(members=[PanelMember(judge=name) for name in members])


async def test_a_registration_does_not_read_those_before_it_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    entry = JudgeRegistrations.entry

    def counting(self: JudgeRegistrations, tenant: str, judge: JudgeRegistration) -> JudgeEntry:
        read.append(judge.name)
        return entry(self, tenant, judge)

    async with directory(sqlite_url) as target, DramaturgClient(target) as client:
        monkeypatch.setattr(JudgeRegistrations, "entry", counting)
        for number in range(12):
            await client.register_judge(
                JudgeRegistration(role="critic", name=f"judge-{number}", target="127.0.0.1:1")
            )
        # Each is read once to be checked and once to be used.
        assert len(read) <= 24


async def test_letters_and_digits_that_look_alike_do_not_tell_names_apart(sqlite_url: str) -> None:
    fakes = [*agents(), Fake("critic", name="modern-ill0")]
    async with gateway(sqlite_url, fakes=fakes) as target, DramaturgClient(target) as client:
        for name in ("modem-illo", "rnodern-1ll0", "Modern-iIlO", "modernlll0"):
            with pytest.raises(ServiceError, match="looks like the configured judge 'modern-ill0'"):
                await client.register_judge(JudgeRegistration(role="critic", name=name, target="127.0.0.1:1"))
        # Another role, and another name.
        await client.register_judge(
            JudgeRegistration(role="critic", name="modern-ill8", target="127.0.0.1:1")
        )
        await client.register_judge(
            JudgeRegistration(role="execute", name="modern-illo", target="127.0.0.1:1")
        )


async def test_a_judge_with_a_name_of_an_earlier_version_is_used_and_changed(sqlite_url: str) -> None:
    stored(sqlite_url, JudgeRegistration(role="critic", name="der prüfer", target="127.0.0.1:1"))
    async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
        assert await names(client) == ["fake", "der prüfer"]
        await client.update_judge(JudgeRegistration(role="critic", name="der prüfer", owner="b"))
        await client.remove_judge("critic", "der prüfer")


async def test_no_address_is_permitted_by_default(sqlite_url: str) -> None:
    async with gateway(sqlite_url, judge_targets=()) as target, DramaturgClient(target) as client:
        with pytest.raises(ServiceError, match="judge_targets"):
            await client.register_judge(JudgeRegistration(role="critic", name="a", target="127.0.0.1:1"))


async def test_names_are_taken_once(sqlite_url: str) -> None:
    async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
        await client.register_judge(JudgeRegistration(role="critic", name="a", target="127.0.0.1:1"))
        for name, reason in (("a", "is registered"), ("fake", "the configuration of the gateway has")):
            with pytest.raises(ServiceError, match=reason) as caught:
                await client.register_judge(JudgeRegistration(role="critic", name=name, target="127.0.0.1:1"))
            assert caught.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_EXISTS
        with pytest.raises(ServiceError, match="is changed there"):
            await client.update_judge(JudgeRegistration(role="critic", name="fake", owner="me"))


async def test_a_mask_that_names_no_changeable_field_is_refused(sqlite_url: str) -> None:
    async with gateway(sqlite_url) as target, DramaturgClient(target) as client:
        await client.register_judge(JudgeRegistration(role="critic", name="a", target="127.0.0.1:1"))
        for field in ("name", "poet", "connection.poet"):
            with pytest.raises(ServiceError) as caught:
                await client.update_judge(JudgeRegistration(role="critic", name="a"), [field])
            assert fields_of(caught.value) == ["update_mask"], field


async def test_a_gateway_without_a_store_registers_none() -> None:
    async with AsyncExitStack() as stack:
        app = App(GatewaySettings(judge_targets=LOOPBACK), RunsSettings(enabled=False))
        contracts = await stack.enter_async_context(app.open())
        server = await stack.enter_async_context(serve(*contracts))
        client = await stack.enter_async_context(DramaturgClient(server.target))
        with pytest.raises(ServiceError, match="enabled"):
            await client.register_judge(JudgeRegistration(role="critic", name="a", target="127.0.0.1:1"))


async def test_a_judge_and_a_shadow_with_mutual_tls_are_registered_with_certificates_by_name(
    tmp_path: Path,
) -> None:
    """The caller, the gateway and the judge authenticate by certificates; the judge has its own authority."""
    platform, partner = Authority(tmp_path / "platform"), Authority(tmp_path / "partner")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    presented = partner.issue("dramaturg")
    for name, file in {
        "partner-ca.pem": partner.certificate,
        "dramaturg.pem": presented.certificate,
        "dramaturg.key": presented.private_key,
    }.items():
        (credentials / name).write_bytes(file.read_bytes())
    (credentials / "partner-token").write_text("k-123")

    def mutual(authority: Authority, name: str) -> ServerSettings:
        issued = authority.issue(name)
        return ServerSettings.loopback(
            tls_certificate_file=issued.certificate,
            tls_private_key_file=issued.private_key,
            tls_client_ca_file=authority.certificate,
            drain_grace_seconds=0.2,
        )

    caller = platform.issue("caller")
    channel = ChannelSettings(
        tls_ca_file=platform.certificate,
        tls_certificate_file=caller.certificate,
        tls_private_key_file=caller.private_key,
    )
    connection = JudgeConnection(
        ca_file="partner-ca.pem",
        certificate_file="dramaturg.pem",
        private_key_file="dramaturg.key",
        token_file="partner-token",
    )
    async with (
        Server([Fake("critic").contract()], mutual(partner, "judge")) as theirs,
        gateway(
            f"sqlite:///{tmp_path}/runs.sqlite3",
            server=mutual(platform, "gateway"),
            judge_credentials_dir=credentials,
        ) as target,
        DramaturgClient(target, channel) as client,
    ):
        judge = await client.register_judge(
            JudgeRegistration(role="critic", name="theirs", target=theirs.target, connection=connection)
        )
        assert judge.health == JudgeHealth.JUDGE_HEALTH_SERVING
        request = scripts_request(1, judges=[JudgeSelection(role="critic", judge="theirs")])
        result = await evaluate_result(client, request)
        outcomes = {verdict.outcome for verdict in result.candidates[0].verdicts}
        assert outcomes == {verdict_pb2.OUTCOME_PASS}
        for name, reached in (("next", connection), ("stranger", JudgeConnection(ca_file="partner-ca.pem"))):
            shadow = JudgeRegistration(role="critic", name=name, target=theirs.target, connection=reached)
            shadow.shadow.of = "fake"
            await client.register_judge(shadow)
        result = await evaluate_result(client, scripts_request(1, shadow_wait=Duration(seconds=20)))
        assert {one.judge for one in result.candidates[0].assessments if one.role == "critic"} == {"fake"}
        shadows = {one.judge: one.assessment for one in result.candidates[0].shadows}
        assert {verdict.outcome for verdict in shadows["next"].verdicts} == {verdict_pb2.OUTCOME_PASS}
        assert shadows["next"].provenance.name == "fake-critic"
        # Without a certificate the judge refuses the connection, which concerns that shadow alone.
        reasons = {verdict.abstain_reason for verdict in shadows["stranger"].verdicts}
        assert reasons == {verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE}
        connection.ca_file = "missing.pem"
        with pytest.raises(ServiceError) as caught:
            await client.update_judge(
                JudgeRegistration(role="critic", name="theirs", connection=connection), ["connection.ca_file"]
            )
        assert fields_of(caught.value) == ["judge.connection.ca_file"]
        assert str(tmp_path) not in str(caught.value)


async def test_a_panel_is_registered_with_judges_that_the_tenant_sees(sqlite_url: str) -> None:
    async with (
        serve(Fake("critic").contract()) as theirs,
        gateway(sqlite_url) as target,
        DramaturgClient(target) as client,
    ):
        await client.register_judge(JudgeRegistration(role="critic", name="theirs", target=theirs.target))
        panel = JudgePanel(
            rule=PANEL_RULE_ANY_FAIL, members=[PanelMember(judge="fake"), PanelMember(judge="theirs")]
        )
        listed = await client.register_judge(JudgeRegistration(role="critic", name="both", panel=panel))
        assert (listed.health, listed.panel.rule) == (JudgeHealth.JUDGE_HEALTH_SERVING, PANEL_RULE_ANY_FAIL)
        request = scripts_request(1, judges=[JudgeSelection(role="critic", judge="both")])
        verdict = (await evaluate_result(client, request)).candidates[0].verdicts[0]
        assert [vote.judge for vote in verdict.votes] == ["fake", "theirs"]
        panel.members.add(judge="both")
        panel.members.add(judge="absent")
        with pytest.raises(ServiceError) as refused:
            await client.update_judge(JudgeRegistration(role="critic", name="both", panel=panel))
        assert fields_of(refused.value) == ["judge.panel.members[2].judge", "judge.panel.members[3].judge"]
        with pytest.raises(ServiceError, match="has no target"):
            await client.update_judge(
                JudgeRegistration(role="critic", name="both", target=theirs.target), ["target"]
            )


async def test_a_judge_that_panels_and_shadows_need_is_not_removed(sqlite_url: str) -> None:
    async with (
        serve(Fake("critic").contract()) as theirs,
        gateway(sqlite_url) as target,
        DramaturgClient(target) as client,
    ):
        await client.register_judge(JudgeRegistration(role="critic", name="theirs", target=theirs.target))
        panel = JudgePanel(members=[PanelMember(judge="fake"), PanelMember(judge="theirs")])
        await client.register_judge(JudgeRegistration(role="critic", name="both", panel=panel))
        shadow = JudgeShadow(of="theirs")
        await client.register_judge(
            JudgeRegistration(role="critic", name="next", target=theirs.target, shadow=shadow)
        )
        with pytest.raises(ServiceError, match="the panels both and the shadows next") as used:
            await client.remove_judge("critic", "theirs")
        assert used.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert used.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_IN_USE
        await client.remove_judge("critic", "next")
        with pytest.raises(ServiceError, match="used by the panels both;"):
            await client.remove_judge("critic", "theirs")
        await client.remove_judge("critic", "both")
        await client.remove_judge("critic", "theirs")
        assert await names(client) == ["fake"]


async def test_the_check_and_the_change_are_one_transaction(sqlite_url: str) -> None:
    """Two gateways: what one of them has not read yet is checked all the same."""
    slow: dict[str, Any] = {"judges_poll_seconds": 3600}
    async with (
        serve(Fake("critic").contract()) as theirs,
        gateway(sqlite_url, **slow) as target,
        DramaturgClient(target) as client,
    ):
        await client.register_judge(JudgeRegistration(role="critic", name="theirs", target=theirs.target))
        other = await asyncio.to_thread(open_reader, sqlite_url)
        panel = JudgePanel(members=[PanelMember(judge="theirs")])
        other.registrations.add("", JudgeRegistration(role="critic", name="both", panel=panel), 9, ["theirs"])
        with pytest.raises(ServiceError, match="used by the panels both;"):
            await client.remove_judge("critic", "theirs")
        assert other.registrations.remove("", "critic", "both")
        assert other.registrations.remove("", "critic", "theirs")
        shadow = JudgeShadow(of="theirs")
        with pytest.raises(ServiceError, match="needs the judge 'theirs', which was removed") as refused:
            await client.register_judge(
                JudgeRegistration(role="critic", name="next", target=theirs.target, shadow=shadow)
            )
        assert fields_of(refused.value) == ["judge"]
        assert other.registrations.all() == []
