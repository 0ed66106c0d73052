"""Judges that tenants register at run time, kept in the run store."""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from pydantic import ValidationError

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    PANEL_RULE_MAJORITY,
    JudgePanel,
    JudgeRegistration,
    JudgeRetry,
    JudgeShadow,
    PanelRule,
    VersionPolicy,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    JudgeConnection as ConnectionMessage,
)
from dramaturg.database import StoreError
from dramaturg.judge.roles import JudgeRole
from dramaturg.service.auth.caller import current, token_value
from dramaturg.service.errors import ServiceError, Violation, invalid_fields
from dramaturg.service.files import channel_credentials
from dramaturg.service.settings import SettingsError
from dramaturg.service.threads import ThreadPool
from gateway.judges.registry import Judge, Registry
from gateway.judges.targets import is_permitted
from gateway.runs.records import RegisteredJudge
from gateway.runs.store import JudgeInUseError, JudgeMissingError, RunStore
from gateway.runs.store_calls import store_unavailable
from gateway.settings import SHADOWED, GatewaySettings, JudgeEntry

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

_JUDGING = "dramaturg.api.judging."
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FILES = ("ca_file", "certificate_file", "private_key_file", "token_file")
_IDENTIFIERS = ("role", "name")
_ATTEMPTS = 5


class JudgeRegistrations:
    """Registers, changes and removes judges of the current tenant.

    All gateways of a store read its judges at an interval; the one that is called applies a change at once.

    Args:
        registry: Gets the registered judges.
        settings: What may be registered.
    """

    def __init__(self, registry: Registry, settings: GatewaySettings) -> None:
        self._registry = registry
        self._settings = settings
        self._store: RunStore | None = None
        self._threads: ThreadPool | None = None
        self._known: Sequence[RegisteredJudge] = ()
        self._entries: Mapping[tuple[str, str, str], tuple[RegisteredJudge, JudgeEntry]] = {}
        """The settings of the known judges that can be used."""
        self._refreshing = asyncio.Lock()

    @asynccontextmanager
    async def persisted(self, store: RunStore) -> AsyncIterator[None]:
        """Keeps registrations in a store within an ``async with`` block.

        Raises:
            StoreError: The store is unavailable.
        """
        self._store, self._threads = store, ThreadPool(2)
        await self._refresh()
        task = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._threads.close()
            self._store = self._threads = None

    @property
    def poll_seconds(self) -> float:
        """How often what is stored of judges is read again."""
        return self._settings.judges_poll_seconds

    @property
    def is_persistent(self) -> bool:
        """Whether the gateway has a store."""
        return self._store is not None

    def registration(self, judge: Judge) -> JudgeRegistration | None:
        """The registration of a judge; None for one of the configuration."""
        if judge.tenant is None:
            return None
        key = judge.tenant, judge.role.name, judge.name
        return next((one.judge for one in self._known if _key(one) == key), None)

    def unusable(self) -> Sequence[tuple[JudgeRegistration, str]]:
        """The registered judges of the current tenant that are not used, with their faults.

        Without those whose role and name a judge of the configuration has.
        """
        tenant, faults = current().tenant, self._registry.unusable
        return [
            (one.judge, self._without_folder(faults[_key(one)]))
            for one in self._known
            if one.tenant == tenant
            and _key(one) in faults
            and not self._registry.is_configured(one.judge.role, one.judge.name)
        ]

    async def register(self, judge: JudgeRegistration) -> None:
        """Registers a judge of the current tenant. See ``JudgeDirectoryService.RegisterJudge``."""
        store = self.persistent()
        self._check(judge, new=True)
        if self._registry.is_configured(judge.role, judge.name):
            raise _exists(judge, "the configuration of the gateway has a judge of that role and name")
        most = self._settings.max_registered_judges
        needed = self._needed(judge)
        added = await self.call(store.registrations.add, current().tenant, judge, most, needed)
        if added is None:
            raise ServiceError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                error_reason_pb2.ERROR_REASON_QUOTA_EXHAUSTED,
                f"{most} judges are registered, the most that the gateway permits",
                metadata={"quota": "max_registered_judges", "limit": str(most)},
            )
        if not added:
            raise _exists(judge, "a judge of that role and name is registered")
        await self._call_refresh()

    async def update(self, judge: JudgeRegistration, mask: FieldMask) -> None:
        """Changes a registered judge. See ``JudgeDirectoryService.UpdateJudge``."""
        store, tenant = self.persistent(), current().tenant
        paths = _paths(judge, mask)
        for _ in range(_ATTEMPTS):
            found = await self.call(store.registrations.get, tenant, judge.role, judge.name)
            if found is None:
                raise self._not_found(judge.role, judge.name)
            changed = JudgeRegistration()
            changed.CopyFrom(found.judge)
            FieldMask(paths=paths).MergeMessage(
                judge, changed, replace_message_field=True, replace_repeated_field=True
            )
            self._check(changed)
            needed = self._needed(changed)
            if await self.call(store.registrations.replace, tenant, changed, found.revision, needed):
                await self._call_refresh()
                return
        raise ServiceError(
            grpc.StatusCode.ABORTED,
            error_reason_pb2.ERROR_REASON_UNSPECIFIED,
            "the judge was changed by others at the same time; try again",
        )

    async def remove(self, role: str, name: str) -> None:
        """Removes a registered judge. See ``JudgeDirectoryService.RemoveJudge``."""
        store = self.persistent()
        try:
            removed = await self.call(store.registrations.remove, current().tenant, role, name)
        except JudgeInUseError as error:
            named = {"panels": error.panels, "shadows": error.shadows}
            users = [f"{kind} {', '.join(names)}" for kind, names in named.items() if names]
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                error_reason_pb2.ERROR_REASON_JUDGE_IN_USE,
                f"{role}={name} is used by the {' and the '.join(users)}; change or remove them first",
                metadata={"role": role, "judge": name},
            ) from error
        if not removed:
            raise self._not_found(role, name)
        await self._call_refresh()

    def _needed(self, judge: JudgeRegistration) -> Collection[str]:
        """The registered judges that a registration names: only those can be removed."""
        named = [member.judge for member in judge.panel.members]
        if judge.HasField("shadow"):
            named.append(judge.shadow.of)
        return [name for name in named if not self._registry.is_configured(judge.role, name)]

    def _users(self, role: str, name: str) -> tuple[Sequence[str], Sequence[str]]:
        """The panels and the shadows of the current tenant that name a judge."""
        tenant = current().tenant
        own = [one.judge for one in self._known if one.tenant == tenant and one.judge.role == role]
        panels = [one.name for one in own if name in (member.judge for member in one.panel.members)]
        return panels, [one.name for one in own if one.shadow.of == name]

    def _check(self, judge: JudgeRegistration, *, new: bool = False) -> None:
        """Checks a registration.

        Args:
            judge: The registration.
            new: Whether its name is a new one: names of stored judges do not change.

        Raises:
            ServiceError: INVALID_ARGUMENT with every violation.
        """
        violations = [*(self._name_violations(judge) if new else ()), *self._violations(judge)]
        if violations:
            raise invalid_fields(violations)

    def _name_violations(self, judge: JudgeRegistration) -> Iterator[Violation]:
        if _NAME.fullmatch(judge.name) is None:
            yield Violation(
                "judge.name",
                f"is {judge.name!r}; a name has ASCII letters, digits, '.', '_' and '-', and begins with a "
                "letter or digit",
            )
        names = (one.name for one in self._registry.of_role(judge.role) if one.tenant is None)
        for name in names:
            if name != judge.name and _likeness(name) == _likeness(judge.name):
                yield Violation(
                    "judge.name",
                    f"is {judge.name!r}, which looks like the configured judge {name!r}; choose another name",
                )

    def _violations(self, judge: JudgeRegistration) -> Iterator[Violation]:
        roles = [name for name, role in self._registry.roles.items() if role.contract.startswith(_JUDGING)]
        if judge.role not in roles:
            yield Violation("judge.role", f"is {judge.role!r}, must be one of {', '.join(roles)}")
        if judge.HasField("panel"):
            yield from self._panel_violations(judge)
        elif not is_permitted(judge.target, self._settings.judge_targets):
            yield Violation(
                "judge.target",
                f"is {judge.target!r}, an address that the gateway does not permit (setting "
                "gateway.judge_targets)",
            )
        if judge.HasField("shadow"):
            yield from self._shadow_violations(judge)
        files = [
            Violation(f"judge.connection.{field}", fault)
            for field in _FILES
            if (fault := self._file_fault(getattr(judge.connection, field)))
        ]
        yield from files
        if files or not (judge.target or judge.HasField("panel")):
            return
        try:
            entry = self.entry(current().tenant, judge)
        except ValidationError as error:
            yield from _violations_of(error)
            return
        if entry.connection is not None:
            try:
                settings = entry.connection.channel_settings()
                channel_credentials(settings)
                token_value(entry.target, settings)
            except SettingsError as error:
                yield Violation("judge.connection", self._without_folder(str(error)))

    def _panel_violations(self, judge: JudgeRegistration) -> Iterator[Violation]:
        if not isinstance(self._registry.roles.get(judge.role), JudgeRole):
            yield Violation("judge.panel", "must be absent: judges of the role give no verdicts")
        panels, _ = self._users(judge.role, judge.name)
        if panels:
            yield Violation("judge.panel", f"must be absent: the judge is a member of {', '.join(panels)}")
        for index, member in enumerate(judge.panel.members):
            found = self._registry.find(judge.role, member.judge)
            if found is None or found.entry.panel is not None:
                fault = f"is {member.judge!r}, no judge of {judge.role!r}, or a panel"
                yield Violation(f"judge.panel.members[{index}].judge", fault)

    def _shadow_violations(self, judge: JudgeRegistration) -> Iterator[Violation]:
        role = self._registry.roles.get(judge.role)
        if not isinstance(role, JudgeRole) and role not in SHADOWED:
            yield Violation("judge.shadow", "must be absent: judges of the role have no shadows")
        _, shadows = self._users(judge.role, judge.name)
        if shadows:
            yield Violation("judge.shadow", f"must be absent: {', '.join(shadows)} shadows the judge")
        found = self._registry.find(judge.role, judge.shadow.of)
        if found is None or found.entry.shadow is not None:
            fault = f"is {judge.shadow.of!r}, no judge of {judge.role!r}, or a shadow"
            yield Violation("judge.shadow.of", fault)

    def _file_fault(self, name: str) -> str:
        if not name:
            return ""
        if self._settings.judge_credentials_dir is None:
            return "must be empty: the setting gateway.judge_credentials_dir of the gateway is absent"
        if _FILE_NAME.fullmatch(name) is None:
            return f"is {name!r}, no plain name of a file"
        if not (self._folder(current().tenant) / name).is_file():
            return f"names the file {name!r}, which the tenant's folder of credentials does not have"
        return ""

    def _without_folder(self, words: str) -> str:
        if self._settings.judge_credentials_dir is None:
            return words
        return words.replace(f"{self._folder(current().tenant)}/", "")

    def _folder(self, tenant: str) -> Path:
        folder = self._settings.judge_credentials_dir
        if folder is None:
            raise SettingsError("the setting gateway.judge_credentials_dir of the gateway is absent")
        return folder / tenant if tenant else folder

    def entry(self, tenant: str, judge: JudgeRegistration) -> JudgeEntry:
        """The settings of a registered judge.

        Raises:
            ValidationError: A field cannot be used.
        """
        timeout = judge.timeout.ToNanoseconds() / 1e9 if judge.HasField("timeout") else None
        policy = VersionPolicy.Name(judge.version_policy).removeprefix("VERSION_POLICY_").lower()
        return JudgeEntry.model_validate(
            {
                "role": judge.role,
                "name": judge.name,
                "target": judge.target,
                "expect_version": judge.expected_version,
                "version_policy": policy if judge.version_policy else None,
                "panel": _panel(judge.panel) if judge.HasField("panel") else None,
                "shadow": _shadow(judge.shadow) if judge.HasField("shadow") else None,
                "retry": _retry(judge.retry) if judge.HasField("retry") else None,
                "connection": None
                if judge.HasField("panel") and not judge.HasField("connection")
                else self._connection(tenant, judge.connection),
                "timeout_seconds": timeout,
                "max_concurrent_calls": judge.max_concurrent_calls or None,
                "owner": judge.owner,
                "labels": dict(judge.labels),
            }
        )

    def _connection(self, tenant: str, stated: ConnectionMessage) -> dict[str, object]:
        # Always a connection of its own, so that nothing of the section ``channel`` is sent.
        given: dict[str, object] = {"tls": stated.tls}
        if stated.server_name:
            given["tls_server_name"] = stated.server_name
        if stated.token_header:
            given["token_header"] = stated.token_header
        for field in _FILES:
            if name := getattr(stated, field):
                setting = field if field == "token_file" else f"tls_{field}"
                given[setting] = self._folder(tenant) / name
        return given

    def persistent(self) -> RunStore:
        """The store.

        Raises:
            ServiceError: FAILED_PRECONDITION, ERROR_REASON_NOT_IMPLEMENTED: the gateway has none.
        """
        if self._store is None:
            raise no_store("registered judges")
        return self._store

    def _not_found(self, role: str, name: str) -> ServiceError:
        configured = self._registry.is_configured(role, name)
        where = "; the configuration of the gateway has it, and is changed there" if configured else ""
        return ServiceError(
            grpc.StatusCode.NOT_FOUND,
            error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND,
            f"no judge {name!r} of {role!r} is registered{where}",
            metadata={"name": name},
        )

    async def call(
        self, method: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Calls a method of the store in a thread.

        Raises:
            ServiceError: The store is unavailable, or a needed judge was removed.
        """
        assert self._threads is not None
        try:
            return await self._threads(method, *args, **kwargs)
        except JudgeMissingError as error:
            words = f"needs the judge {error.name!r}, which was removed"
            raise invalid_fields([Violation("judge", words)]) from error
        except StoreError as error:
            raise store_unavailable(error) from error

    async def _call_refresh(self) -> None:
        try:
            await self._refresh()
        except StoreError as error:
            raise store_unavailable(error) from error

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.poll_seconds)
            try:
                await self._refresh()
            except StoreError as error:
                logger.warning("the registered judges stay as they are: %s", error)

    async def _refresh(self) -> None:
        """Reads the registered judges, and applies them if they have changed."""
        assert self._store is not None
        assert self._threads is not None
        # One at a time: a read that begins before a change must not be applied after it.
        async with self._refreshing:
            found = await self._threads(self._store.registrations.all)
            # What is unusable is tried again: its files may be there by now.
            if found == self._known and not self._registry.unusable:
                return
            self._known = found
        entries: dict[tuple[str, str, str], tuple[RegisteredJudge, JudgeEntry]] = {}
        unreadable: dict[tuple[str, str, str], str] = {}
        for one in found:
            known = self._entries.get(_key(one))
            if known is not None and known[0] == one:
                entries[_key(one)] = known
                continue
            # It was checked by the settings of that time, or of another version.
            try:
                entries[_key(one)] = one, self.entry(one.tenant, one.judge)
            except ValidationError as error:
                faults = (f"{field} {words}" for field, words in _violations_of(error))
                unreadable[_key(one)] = "; ".join(faults)
            except SettingsError as error:
                unreadable[_key(one)] = str(error)
            except Exception as error:  # no other judge fails for it
                unreadable[_key(one)] = f"it cannot be read ({type(error).__name__}: {error})"
        self._entries = entries
        self._registry.register([(one.tenant, entry) for one, entry in entries.values()], unreadable)


_FIELDS = {
    "expect_version": "expected_version",
    "timeout_seconds": "timeout",
    "connection.tls_server_name": "connection.server_name",
}
"""The fields of registrations whose settings have other names."""


def _likeness(name: str) -> str:
    """Equal for names that look alike, as those of Unicode Technical Standard 39 that are ASCII do.

    Case and separators do not count.
    """
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    return folded.replace("rn", "m")


_ALIKE = str.maketrans({"1": "l", "i": "l", "|": "l", "0": "o", ".": "", "_": "", "-": "", " ": ""})


def _violations_of(error: ValidationError) -> Iterator[Violation]:
    for problem in error.errors(include_input=False, include_url=False):
        place = ".".join(str(part) for part in problem["loc"])
        words = problem["msg"].removeprefix("Value error, ")
        yield Violation(f"judge.{_FIELDS.get(place, place)}".rstrip("."), words)


def _panel(panel: JudgePanel) -> dict[str, object]:
    rule = PanelRule.Name(panel.rule or PANEL_RULE_MAJORITY).removeprefix("PANEL_RULE_")
    return {
        "rule": rule.lower().replace("_", "-"),
        "members": [
            {
                "judge": one.judge,
                "model": one.model,
                "weight": one.weight or 1,
                "threshold": one.threshold,
            }
            for one in panel.members
        ],
        "quorum": panel.quorum or None,
    }


def _shadow(shadow: JudgeShadow) -> dict[str, object]:
    made: dict[str, object] = {"of": shadow.of, "model": shadow.model}
    return {**made, "queue_size": shadow.queue_size} if shadow.queue_size else made


def _retry(retry: JudgeRetry) -> dict[str, object]:
    given = {"attempts": retry.attempts, "codes": list(retry.codes)}
    return {name: value for name, value in given.items() if value}


def _key(one: RegisteredJudge) -> tuple[str, str, str]:
    return one.tenant, one.judge.role, one.judge.name


def _paths(judge: JudgeRegistration, mask: FieldMask) -> Sequence[str]:
    """The fields to change.

    Raises:
        ServiceError: INVALID_ARGUMENT: the mask names an unknown field, or one that does not change.
    """
    if not mask.paths or list(mask.paths) == ["*"]:
        fields = [field for field, _ in judge.ListFields()] if not mask.paths else judge.DESCRIPTOR.fields
        return [field.name for field in fields if field.name not in _IDENTIFIERS]
    violations = []
    for path in mask.paths:
        if path in _IDENTIFIERS:
            violations.append(Violation("update_mask", f"names {path!r}, which does not change"))
        elif not FieldMask(paths=[path]).IsValidForDescriptor(judge.DESCRIPTOR):
            known = ", ".join(
                field.name for field in judge.DESCRIPTOR.fields if field.name not in _IDENTIFIERS
            )
            violations.append(Violation("update_mask", f"names {path!r}; the fields are {known}"))
    if violations:
        raise invalid_fields(violations)
    return list(mask.paths)


def _exists(judge: JudgeRegistration, reason: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.ALREADY_EXISTS,
        error_reason_pb2.ERROR_REASON_JUDGE_EXISTS,
        f"{judge.role}={judge.name}: {reason}",
        metadata={"role": judge.role, "judge": judge.name},
    )


def no_store(what: str) -> ServiceError:
    """The error of a call that needs a store of runs, where the gateway has none.

    Args:
        what: What the store would keep.
    """
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
        f"the gateway has no store of runs, which keeps {what} (setting runs.enabled)",
    )
