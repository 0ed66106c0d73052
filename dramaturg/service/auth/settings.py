"""Settings of authentication, the permissions that methods need, and those that roles give.

The table has every method of every contract, EvaluationService as a whole: a server that authenticates its
callers does not start with a method without a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dramaturg.api.evaluation.v1 import evaluation_service_pb2
from dramaturg.service.auth.caller import TENANT_PATTERN
from dramaturg.service.settings import Settings

EVALUATE: Final = "evaluate"
"""Evaluate samples, and ask the judges of a gateway."""
RUNS_READ: Final = "runs.read"
"""See the tenant's runs and their results."""
RUNS_WRITE: Final = "runs.write"
"""Create, change and delete the tenant's runs."""
JUDGES_READ: Final = "judges.read"
"""List judges and read identities."""
JUDGES_WRITE: Final = "judges.write"
"""Register, change, certify and remove the tenant's judges."""
SERVE: Final = "serve"
"""Ask the services behind the gateway."""
OPEN: Final = "open"
"""No permission is needed, and no authentication."""

SERVICE: Final = "service"
"""The role of a service. It may name the tenant that it calls for."""

ROLES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "viewer": frozenset({RUNS_READ, JUDGES_READ}),
        "evaluator": frozenset({RUNS_READ, JUDGES_READ, RUNS_WRITE, EVALUATE}),
        "operator": frozenset({RUNS_READ, JUDGES_READ, RUNS_WRITE, JUDGES_WRITE, EVALUATE, SERVE}),
        SERVICE: frozenset({JUDGES_READ, SERVE}),
    }
)
"""The permissions of each role."""

_EVALUATION = evaluation_service_pb2.DESCRIPTOR.services_by_name["EvaluationService"]

_TABLE: Mapping[str, Mapping[str, str]] = {
    "grpc.health.v1.Health": {OPEN: "Check List Watch"},
    "dramaturg.api.identity.v1.IdentityService": {JUDGES_READ: "GetIdentity CheckModel ListModelWaits"},
    # All methods: each kind of evaluation has one.
    "dramaturg.api.evaluation.v1.EvaluationService": {EVALUATE: " ".join(_EVALUATION.methods_by_name)},
    "dramaturg.api.evaluation.v1.JudgeDirectoryService": {
        JUDGES_READ: "ListJudges CheckJudge ListModelWaits",
        JUDGES_WRITE: "RegisterJudge UpdateJudge RemoveJudge CertifyJudge MonitorJudge",
    },
    "dramaturg.api.evaluation.v1.RunService": {
        RUNS_READ: "GetRun ListRuns WatchRun ListSamples ListResults GetSummary CompareRuns "
        "MeasureJudgeAgreement GetLeaderboard ExportResults GetReport",
        RUNS_WRITE: "CreateRun UpdateRun PauseRun ResumeRun CancelRun RerunSamples ExtendRun DeleteRun",
    },
    "dramaturg.api.evaluation.v1.DatasetService": {
        RUNS_READ: "GetDataset ListDatasets",
        RUNS_WRITE: "CreateDataset WriteDataset DeleteDataset",
    },
    "dramaturg.api.evaluation.v1.LabelService": {
        RUNS_READ: "GetLabelSet ListLabelSets ListLabelItems ExportLabels",
        RUNS_WRITE: "CreateLabelSet WriteLabel DeleteLabelSet",
    },
    "dramaturg.api.generation.v1.GenerationService": {
        SERVE: "Generate GenerateBatch ListModels GetRateLimits CheckProvider GetLedgerStatus"
    },
    "dramaturg.api.generation.v1.AuthoringService": {
        SERVE: (
            "WriteScript ExpandConstraints PerturbScript WriteScriptGraph ChooseOption WriteScenario "
            "WriteSimulationTask NextUserTurn Reply"
        )
    },
    "dramaturg.api.generation.v1.EdgeService": {SERVE: "PredictEdges"},
    "dramaturg.api.embedding.v1.EmbeddingService": {SERVE: "Embed EmbedTokens"},
    "dramaturg.api.roles.v1.RoleService": {SERVE: "GenerateRoles ClusterRoles"},
    "dramaturg.api.agents.v1.SynthesizeService": {SERVE: "Synthesize"},
    "dramaturg.api.judging.v1.JudgeService": {SERVE: "Judge"},
    "dramaturg.api.judging.v1.PairJudgeService": {SERVE: "ComparePair"},
    "dramaturg.api.judging.v1.RatingJudgeService": {SERVE: "RateReply"},
    "dramaturg.api.judging.v1.ChallengeJudgeService": {SERVE: "FindChallengingTurn"},
    "dramaturg.api.judging.v1.TextScorerService": {SERVE: "ScoreTexts"},
    "dramaturg.api.graph.v1.GraphService": {
        SERVE: (
            "ParseGraph CheckGraph ScoreEdges MeasureEditDistance AggregatePairs AggregatePreferences "
            "DrawBaseline SelectByAgreement"
        )
    },
    "dramaturg.api.alignment.v1.AlignmentService": {
        SERVE: (
            "MeasureAccuracy MeasureAgreement CorrelateScores CompareRuns RankSystems MeasureCalibration "
            "MeasurePairBias EstimateMeans MeasurePreferences AggregateLabels PlanStudy ScoreText"
        )
    },
}

RULES: Mapping[str, str] = MappingProxyType(
    {
        f"/{service}/{method}": permission
        for service, permissions in _TABLE.items()
        for permission, methods in permissions.items()
        for method in methods.split()
    }
)
"""The permission that a method needs, by the method's full name."""


def permissions_of(roles: Iterable[str]) -> frozenset[str]:
    """The permissions of a caller with these roles."""
    return frozenset[str]().union(*(ROLES[role] for role in roles))


def _known(role: str) -> str:
    if role not in ROLES:
        raise ValueError(f"{role!r} is none of the roles {', '.join(ROLES)}")
    return role


Role = Annotated[str, AfterValidator(_known)]
"""The name of a role."""


class Grant(BaseModel):
    """The tenant and the roles of a caller."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tenant: str = Field(default="", pattern=f"^({TENANT_PATTERN})?$")
    """The tenant. Empty for services alone."""
    roles: tuple[Role, ...] = Field(min_length=1)
    """The roles."""

    @model_validator(mode="after")
    def _has_tenant(self) -> Grant:
        if not self.tenant and not self.is_placeless:
            raise ValueError(f"has no tenant; only the role {SERVICE!r} goes without")
        return self

    @property
    def is_placeless(self) -> bool:
        """Whether the tenant is not needed, or comes from elsewhere."""
        return set(self.roles) <= {SERVICE}


class IdentityGrant(Grant):
    """One ``[[auth.identities]]`` table: the tenant and roles of a SPIFFE id, or of the subject of a JWT."""

    pattern: str = Field(min_length=1, max_length=2048, pattern=r"^[^\s]+$")
    """The identity. ``*`` matches one part between slashes (in a JWT's subject: between slashes and
    colons), ``{tenant}`` the part that names the tenant.

    For example: spiffe://example.org/ns/dramaturg/sa/*"""

    @property
    def is_placeless(self) -> bool:
        """Whether the tenant is not needed, or is part of the pattern."""
        return super().is_placeless or "{tenant}" in self.pattern

    @model_validator(mode="after")
    def _one_tenant(self) -> IdentityGrant:
        if self.pattern.count("{tenant}") + bool(self.tenant) > 1:
            raise ValueError("names the tenant more than once")
        return self


class AuthSettings(Settings):
    """Section ``auth``. Without a source of identities, callers are not authenticated."""

    section: ClassVar[str] = "auth"

    tokens_file: Path | None = None
    """Bearer tokens, by their SHA-256 (TOML, or JSON where the name ends in ".json"). Read again when it
    changes."""
    jwks_file: Path | None = None
    """The keys that sign JSON Web Tokens (RFC 7517). Read again when it changes."""
    jwt_issuer: str = ""
    """The required issuer (``iss``) of JWTs. Needed with ``jwks_file``."""
    jwt_audience: str = ""
    """The required audience (``aud``) of JWTs. Needed with ``jwks_file``."""
    jwt_algorithms: tuple[Literal["RS256", "ES256", "EdDSA"], ...] = ("RS256", "ES256", "EdDSA")
    """The signatures that are accepted."""
    jwt_leeway_seconds: float = Field(default=30.0, ge=0, le=300)
    """The tolerated difference of the clocks of issuer and server, in seconds."""
    jwt_principal_claim: str = Field(default="sub", min_length=1)
    """The claim with the principal."""
    jwt_tenant_claim: str = Field(default="tenant", min_length=1)
    """The claim that names the tenant."""
    jwt_roles_claim: str = Field(default="roles", min_length=1)
    """The claim that lists the roles. Unknown ones are ignored. A token without the claim has the roles that
    ``identities`` give to its principal."""
    identities: tuple[IdentityGrant, ...] = ()
    """Tenants and roles of the SPIFFE ids of client certificates, and of JWTs without the claims. The first
    pattern that matches counts."""
    reflection_permission: Literal["judges.read", "open"] = JUDGES_READ
    """The permission that reflection needs."""
    allow_anonymous: bool = False
    """Whether a gateway without a source of identities may listen on another address than loopback. Every
    caller may then call everything."""
    audit: str = ""
    """The destination of the audit log: "stdout", or a file. Empty: none."""

    @model_validator(mode="after")
    def _consistent(self) -> AuthSettings:
        if self.jwks_file is not None and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError("jwks_file needs jwt_issuer and jwt_audience")
        if (self.jwt_issuer or self.jwt_audience) and self.jwks_file is None:
            raise ValueError("jwt_issuer and jwt_audience need jwks_file")
        if not self.jwt_algorithms:
            raise ValueError("jwt_algorithms is empty")
        return self

    @property
    def enabled(self) -> bool:
        """Whether callers are authenticated: a source of identities is configured."""
        return self.tokens_file is not None or self.jwks_file is not None or bool(self.identities)
