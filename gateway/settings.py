"""Settings of the gateway."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    field_validator,
    model_validator,
)

from dramaturg.formats.rubric import read_weights, weight_of
from dramaturg.judge.roles import CHALLENGE_JUDGE, PAIR_JUDGE, RATING_JUDGE, ROLES, JudgeRole, role_table
from dramaturg.service.settings import Address, ChannelSettings, Settings, TokenHeader
from gateway.http.settings import HttpSettings
from gateway.judges.identity import VersionRange
from gateway.judges.targets import check_pattern

CRITERION_PATTERN = "^[a-z0-9]+(_[a-z0-9]+)*$"


class CriterionEntry(BaseModel):
    """A criterion of a configured role, with its definition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=CRITERION_PATTERN, max_length=100)
    """The criterion's id, in lower snake case, worded so that PASS is good."""
    definition: str = Field(default="", max_length=10_000)
    """The definition, for judges that judge any criterion."""


class RoleEntry(BaseModel):
    """One ``[[gateway.roles]]`` table: a role of judges of texts beside the built-in ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$", max_length=100)
    """The role's name, in lower-case kebab case; unique."""
    criteria: tuple[CriterionEntry, ...] = Field(min_length=1, max_length=50)
    """The criteria of the role, as ids or as tables of ``id`` and ``definition``."""
    compares: bool = False
    """Whether its judges receive the gold answer."""

    @field_validator("criteria", mode="before")
    @classmethod
    def _from_ids(cls, criteria: object) -> object:
        if not isinstance(criteria, list | tuple):
            return criteria
        return [{"id": one} if isinstance(one, str) else one for one in criteria]

    @field_validator("criteria")
    @classmethod
    def _distinct(cls, criteria: tuple[CriterionEntry, ...]) -> tuple[CriterionEntry, ...]:
        if repeated := [name for name, count in Counter(one.id for one in criteria).items() if count > 1]:
            raise ValueError(f"names a criterion more than once: {', '.join(repeated)}")
        return criteria

    def role(self) -> JudgeRole:
        """The role that the entry describes."""
        return JudgeRole(
            name=self.name,
            criteria=tuple(one.id for one in self.criteria),
            compares=self.compares,
            definitions={one.id: one.definition for one in self.criteria if one.definition},
        )


PanelRule = Literal["majority", "unanimous", "any-fail", "mean", "weighted", "cascade"]
"""How the votes of a panel become one verdict."""
VersionPolicy = Literal["fail", "pause", "warn"]
"""The reaction of a run to a judge of an unexpected version."""


class JudgeConnection(BaseModel):
    """The table ``connection`` of a judge: TLS and credentials of its own.

    With it, the judge gets neither the certificate nor the token of the section ``channel``. The limits of
    that section apply.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tls: bool = False
    """Whether the connection is encrypted. Without ``tls_ca_file`` the system's authorities are trusted."""
    tls_ca_file: Path | None = None
    """The authorities (PEM) one of which must have signed the judge's certificate. Implies ``tls``."""
    tls_certificate_file: Path | None = None
    """The certificate chain (PEM) that the gateway presents. Implies ``tls``."""
    tls_private_key_file: Path | None = None
    """The private key of that certificate (PEM)."""
    tls_server_name: str | None = Field(default=None, min_length=1, max_length=253)
    """The name that the judge's certificate must hold, where it is not the target's host."""
    token_file: Path | None = None
    """The file with the token of the calls. Read again when it changes."""
    token_header: TokenHeader = Field(default="authorization")
    """The metadata key of the token. "authorization" has "Bearer " before the token, other keys have the
    token alone."""
    token_over_plain_text: bool = False
    """Whether the token is also sent where the connection is not encrypted and leaves this machine."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.channel_settings()
        return self

    def channel_settings(self) -> ChannelSettings:
        """The settings of the judge's channel: limits of the section ``channel``, the rest of this table."""
        return ChannelSettings(**self.model_dump())


class PanelMember(BaseModel):
    """A member of a panel: a name, or a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    judge: str = Field(min_length=1, max_length=100)
    """The registered name of a judge of the panel's role."""
    model: str = Field(default="", max_length=200)
    """The model of the judge. Empty: that of the request."""
    weight: float = Field(default=1, gt=0, le=1e6)
    """The weight, for the rule "weighted"."""
    threshold: float = Field(default=0, ge=0, le=1)
    """The confidence from which on the verdict of a stage stands, for the rule "cascade": above 0 for every
    member but the last."""


class PanelTable(BaseModel):
    """The table ``panel`` of a judge that consists of other judges of its role."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: PanelRule = "majority"
    """How the votes of the members become one verdict."""
    members: tuple[PanelMember, ...] = Field(min_length=2, max_length=20)
    """The members, as names or as tables of ``judge``, ``model``, ``weight`` and ``threshold``; of the rule
    "cascade" in the order in which they are asked."""
    quorum: int | None = Field(default=None, ge=1)
    """The least number of members that do not abstain. Absent: more than half."""
    weights_file: Path | None = None
    """A file with the weights of all members (``dramaturg judges weights``), for the rule "weighted". Read
    with the configuration."""

    @field_validator("members", mode="before")
    @classmethod
    def _from_names(cls, members: object) -> object:
        if not isinstance(members, list | tuple):
            return members
        return [{"judge": one} if isinstance(one, str) else one for one in members]

    @model_validator(mode="wrap")
    @classmethod
    def _weighted(cls, given: object, validate: ModelWrapValidatorHandler[Self]) -> Self:
        table = validate(given)
        if table.weights_file is None:
            return table
        if table.rule != "weighted":
            raise ValueError(f"has a weights_file, which the rule {table.rule!r} does not use")
        if any("weight" in one.model_fields_set for one in table.members):
            raise ValueError("has weights and a weights_file")
        weights = read_weights(table.weights_file)
        members = []
        for one in table.members:
            weight = weight_of(weights, one.judge, one.model)
            if weight is None:
                raise ValueError(f"has a weights_file without the member {one.judge}")
            members.append(PanelMember(judge=one.judge, model=one.model, weight=weight))
        return table.model_copy(update={"members": tuple(members)})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        seats = Counter((one.judge, one.model) for one in self.members)
        if repeated := [judge for (judge, _), count in seats.items() if count > 1]:
            raise ValueError(f"names a member more than once: {', '.join(repeated)}")
        if self.quorum is not None and self.quorum > len(self.members):
            raise ValueError(f"has a quorum of {self.quorum} and {len(self.members)} members")
        if self.rule != "weighted" and any(one.weight != 1 for one in self.members):
            raise ValueError(f"has weights, which the rule {self.rule!r} does not use")
        *earlier, last = (one.threshold for one in self.members)
        if self.rule == "cascade":
            if last or not all(earlier):
                raise ValueError("must have a threshold of every member but the last, as a cascade")
            if self.quorum is not None:
                raise ValueError("has a quorum, which the rule 'cascade' does not use")
        elif last or any(earlier):
            raise ValueError(f"has thresholds, which the rule {self.rule!r} does not use")
        return self

    @property
    def least_votes(self) -> int:
        """The quorum, its default applied."""
        if self.rule == "cascade":
            return len(self.members)
        return self.quorum or len(self.members) // 2 + 1


SHADOWED = (PAIR_JUDGE, RATING_JUDGE, CHALLENGE_JUDGE)
"""The roles whose judges have shadows, besides those whose judges give verdicts."""


class ShadowTable(BaseModel):
    """The table ``shadow`` of a judge that gets the requests of another one and changes no verdict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    of: str = Field(min_length=1, max_length=100)
    """The registered name of the judge or panel of the role that it shadows."""
    model: str = Field(default="", max_length=200)
    """The model of the shadow. Empty: the default of the judge."""
    queue_size: int = Field(default=256, ge=1, le=100_000)
    """The most candidates that wait for it or are in its calls. Further ones are not sent."""


RetryCode = Literal[
    "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"
]
"""A gRPC status after which a call can be repeated."""


class RetryTable(BaseModel):
    """The table ``retry`` of a judge: whether its failed calls are repeated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attempts: int = Field(default=3, ge=2, le=10)
    """The most attempts at a call, within its timeout."""
    codes: tuple[RetryCode, ...] = Field(default=("UNAVAILABLE",), min_length=1)
    """The statuses after which a call is repeated."""


class JudgeEntry(BaseModel):
    """One ``[[gateway.judges]]`` table: a registered judge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    """The role that it serves, for example "critic"."""
    name: str = Field(min_length=1, max_length=100)
    """Its registered name, unique within its role."""
    target: Address = ""
    """Its address, for example "critic.dramaturg.svc:50051". Empty for a panel."""
    panel: PanelTable | None = None
    """The members of a panel, in the place of an address."""
    shadow: ShadowTable | None = None
    """The judge that it shadows. Absent: none."""
    default: bool = False
    """Whether it serves the role where a request names no judge. True for the only judge of a role."""
    expect_version: str = Field(default="", max_length=100)
    """The version of its identity: exact ("1.4.2") or a range (">=1.4,<2"). Empty: any."""
    version_policy: VersionPolicy | None = None
    """The reaction of a run to another version than the expected one, and to an identity that changes during
    the run. Absent: "fail" with ``expect_version``, else "warn"."""
    connection: JudgeConnection | None = None
    """TLS and credentials of its own. Absent: those of the section ``channel``."""
    timeout_seconds: float | None = Field(default=None, gt=0, le=3600)
    """The timeout of the judge. Absent: ``judge_timeout_seconds``."""
    max_concurrent_calls: int | None = Field(default=None, ge=1, le=100_000)
    """The most concurrent calls of the judge. Absent: ``calls_per_judge``."""
    retry: RetryTable | None = None
    """Whether its failed calls are repeated. Absent: not by the gateway."""
    owner: str = Field(default="", max_length=200)
    """Who runs the judge, for people: a team or an address."""
    labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    """Labels, for people and programs that list judges."""

    @field_validator("expect_version")
    @classmethod
    def _is_range(cls, expected: str) -> str:
        if expected:
            VersionRange.parse(expected)
        return expected

    @model_validator(mode="after")
    def _is_server_or_panel(self) -> Self:
        if self.shadow is not None and self.default:
            raise ValueError("is a shadow, which is not the default of a role")
        if self.shadow is not None and self.shadow.of == self.name:
            raise ValueError("is a shadow of itself")
        if self.panel is None:
            if not self.target:
                raise ValueError("has no target")
            return self
        of_servers = ("target", "expect_version", "version_policy", "connection", "timeout_seconds")
        others = ("max_concurrent_calls", "retry", "shadow")
        given = [name for name in (*of_servers, *others) if getattr(self, name)]
        if given:
            raise ValueError(f"is a panel, which has no {', '.join(given)}: its members have")
        return self

    @property
    def may_be_only(self) -> bool:
        """Whether it serves its role by default if the role has no other judge."""
        return self.panel is None and self.shadow is None

    @property
    def reaction(self) -> VersionPolicy:
        """The reaction to another version, defaults applied."""
        return self.version_policy or ("fail" if self.expect_version else "warn")


class JudgeTables(BaseModel):
    """The tables of roles and judges: of the section ``gateway``, or of a file in ``judges_dir``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roles: tuple[RoleEntry, ...] = ()
    """Roles in addition to the built-in ones. A request uses such a role by naming it in ``judges``."""
    judges: tuple[JudgeEntry, ...] = ()
    """The registered judges. Several may share a target."""

    @field_validator("roles")
    @classmethod
    def _distinct(cls, roles: tuple[RoleEntry, ...]) -> tuple[RoleEntry, ...]:
        role_table(entry.role() for entry in roles)
        return roles

    @field_validator("judges")
    @classmethod
    def _unambiguous(cls, judges: tuple[JudgeEntry, ...]) -> tuple[JudgeEntry, ...]:
        names = Counter((judge.role, judge.name) for judge in judges)
        defaults = Counter(judge.role for judge in judges if judge.default)
        if repeated := [f"{role}={name}" for (role, name), count in names.items() if count > 1]:
            raise ValueError(f"registers a judge more than once: {', '.join(repeated)}")
        if several := [role for role, count in defaults.items() if count > 1]:
            raise ValueError(f"has more than one default for a role: {', '.join(several)}")
        return judges

    def check_roles(self) -> None:
        """Checks that the role of every judge exists, and that roles of panels and shadows have verdicts.

        Raises:
            ValueError: A role is neither built in nor among ``roles``, or gives no verdicts.
        """
        known = [*ROLES, *(entry.name for entry in self.roles)]
        if unknown := [judge.role for judge in self.judges if judge.role not in known]:
            raise ValueError(
                f"has judges of unknown roles: {', '.join(unknown)}; there are {', '.join(known)}"
            )
        for judge in self.judges:
            role = ROLES.get(judge.role)
            if role is None or isinstance(role, JudgeRole):
                continue
            for kind, table in (("panel", judge.panel), ("shadow", judge.shadow)):
                if table is not None and not (kind == "shadow" and role in SHADOWED):
                    raise ValueError(f"has a {kind} of {judge.role!r}, a role without {kind}s: {judge.name}")

    def check_members(self) -> None:
        """Checks the members of every panel and what shadows shadow, when all judges are known.

        Raises:
            ValueError: A member is no judge of the role, or a panel; a shadow shadows no judge of the role,
                or a shadow.
        """
        servers = {(judge.role, judge.name) for judge in self.judges if judge.panel is None}
        shadowed = {(judge.role, judge.name) for judge in self.judges if judge.shadow is None}
        for judge in self.judges:
            if judge.shadow is not None and (judge.role, judge.shadow.of) not in shadowed:
                raise ValueError(
                    f"has a shadow of {judge.shadow.of!r}, no judge of {judge.role!r}, or a shadow: "
                    f"{judge.role}={judge.name}"
                )
            members = () if judge.panel is None else judge.panel.members
            absent = [one.judge for one in members if (judge.role, one.judge) not in servers]
            if absent:
                raise ValueError(
                    f"has a panel with members that are no judges of {judge.role!r}, or panels: "
                    f"{judge.role}={judge.name}: {', '.join(absent)}"
                )


class GatewaySettings(Settings, JudgeTables):  # type: ignore[misc] # the configurations agree
    """Section ``gateway``."""

    section: ClassVar[str] = "gateway"

    http: HttpSettings = HttpSettings()
    """The API over HTTP."""
    console: bool | None = None
    """Whether the HTTP server also serves the web console, at the path /console/. Absent: no, except with
    ``dramaturg up``."""
    judges_dir: Path | None = None
    """A folder of files ``*.toml`` with tables ``[[judges]]`` and ``[[roles]]`` in addition to those of this
    section. Files are read in the order of their names: a later judge replaces an earlier one of the same
    role and name, and a later default replaces an earlier default. Files are read again when they change."""
    judges_poll_seconds: float = Field(default=5, gt=0)
    """The interval at which ``judges_dir`` and the registered judges of the store are checked for changes."""
    judge_targets: tuple[str, ...] = ()
    """Patterns of the addresses at which judges may be registered at run time, for example
    "*.judges.svc:50051". "*" stands for one label of a name, or for any port. Empty: none. Absent: none, but
    loopback addresses with ``dramaturg up`` for this machine alone."""
    judge_credentials_dir: Path | None = None
    """The folder of the certificates and tokens that registered judges may name: a folder of files for each
    tenant, or the files themselves where callers are not authenticated. Absent: registered judges have
    none."""
    max_registered_judges: int = Field(default=50, ge=0, le=10_000)
    """The most judges that a tenant may register."""
    quarantine_breaches: int = Field(default=10, ge=0)
    """The number of answers within ``quarantine_window_seconds``, more than half of all, that break a judge's
    contract, after which it is in quarantine: it is not called until a check succeeds. 0: never."""
    quarantine_window_seconds: float = Field(default=60, gt=0, le=3600)
    """The period in which breaches of the contract are counted."""
    quarantine_check_seconds: float = Field(default=30, gt=0)
    """The time to the first check of a judge in quarantine; doubled by each check that fails, up to an
    hour."""
    judge_timeout_seconds: float = Field(default=300, gt=0)
    """The timeout of a judge, from the call to its first answer and from each answer to the next, at most the
    deadline of the caller."""
    gold_answer_timeout_seconds: float = Field(default=300, gt=0)
    """The timeout of the gold answer, at most half of the time left: the judges that compare with it get
    the other half."""
    deadline_reserve_seconds: float = Field(default=0.5, ge=0)
    """The time reserved before the deadline of the call to send the result."""
    calls_per_judge: int = Field(default=64, ge=1)
    """The most concurrent calls of one judge, over all evaluations. Further calls wait; tenants are served
    equally."""
    worker_processes: int = Field(default=2, ge=0, le=64)
    """The processes that compute summaries, reports, exports, leaderboards and comparisons. They start with
    the first such call. One tenant has one at most. 0: threads of the gateway's own process compute them.
    As many others, two at most, parse long candidates."""
    worker_memory_bytes: int = Field(default=512 << 20, ge=64 << 20)
    """The memory of each such process, besides its code."""
    identity_ttl_seconds: float = Field(default=60, ge=0)
    """How long the identity of a judge is cached."""
    identity_timeout_seconds: float = Field(default=5, gt=0)
    """The timeout of a request for the identity or health of a judge."""

    identity_check_seconds: float = Field(default=30, ge=0)
    """The interval at which the default judges are asked whether they accept the identity of the gateway.
    While none accepts it and one refuses it, the gateway is not serving. 0: never."""

    @field_validator("judge_targets")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            check_pattern(pattern)
        return patterns

    @model_validator(mode="after")
    def _roles_exist(self) -> Self:
        self.check_roles()
        return self
