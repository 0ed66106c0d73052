"""The permissions that methods need, and those that roles give.

The table has every method of every contract, EvaluationService as a whole: a server that authenticates its
callers does not start with a method without a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from dramaturg.api.evaluation.v1 import evaluation_service_pb2

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
