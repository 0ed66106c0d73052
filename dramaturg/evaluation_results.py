"""Results of ``dramaturg.evaluation``: frozen, with None for each value that is absent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, ScriptsResult
from dramaturg.api.evaluation.v1.texts_pb2 import TextResult, TextsResult
from dramaturg.kinds.pairs import comparisons
from dramaturg.results.frames import pandas_frame
from dramaturg.results.names import abstention_name, finding_name, outcome_name
from dramaturg.results.rows import flatten

if TYPE_CHECKING:
    import pandas

    from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult

Message = TypeVar("Message", ScriptsResult, TextsResult)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fault of a script or text."""

    kind: str
    """E.g. "DUPLICATE_STEP"; empty if it is not stated."""
    steps: tuple[int, ...]
    """The steps concerned, as indices into the steps of the candidate (or turns of it), from 0."""
    description: str
    """The problem, as text."""
    constraint: str
    """The constraint that is broken. Empty: none."""
    missing_step: str
    """The text of the missing step. Empty: none."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The judgement of one criterion."""

    criterion: str
    """The id of the criterion."""
    passed: bool | None
    """Whether the criterion is met. None: the verdict abstains or is a score."""
    score: float | None
    """The number on the scale of the criterion; without a scale from 0 to 1, if the judge grades."""
    confidence: float | None
    """The measured probability that the outcome is right, from 0 to 1, if the judge states it."""
    measured_confidence: float | None
    """How far the repeats of the judge agree, from 0 to 1. None: no repeats."""
    abstain_reason: str | None
    """The reason of an abstention, e.g. "TIMED_OUT". None: it does not abstain."""
    rationale: str
    """The rationale, as text."""
    findings: tuple[Finding, ...]
    """The faults found."""
    judge: str
    """The registered name of the judge or panel. Empty: several judges."""


@dataclasses.dataclass(frozen=True)
class CandidateVerdicts:
    """The verdicts of one script or text."""

    id: str
    """Its id."""
    model: str
    """Its author, as given."""
    verdicts: tuple[Verdict, ...]
    """One verdict for each criterion."""

    def __getitem__(self, criterion: str) -> Verdict:
        """The verdict of a criterion.

        Raises:
            KeyError: It was not judged.
        """
        for verdict in self.verdicts:
            if verdict.criterion == criterion:
                return verdict
        raise KeyError(criterion)


@dataclasses.dataclass(frozen=True)
class Evaluation(Generic[Message]):
    """The result of ``evaluate_scripts`` and ``evaluate_texts``."""

    candidates: tuple[CandidateVerdicts, ...]
    """The scripts or texts, in the order given."""
    message: Message = dataclasses.field(repr=False)
    """The result as the gateway returned it, with assessments, provenance and usage."""

    def to_pandas(self) -> pandas.DataFrame:
        """The verdicts as a frame with the columns of exports; an absent value is ``pandas.NA``.

        Raises:
            ImportError: pyarrow or pandas is not installed. The message names the extra.
        """
        return pandas_frame(_rows(self.message))

    def _repr_html_(self) -> str:
        """The card of the sample in a notebook: its verdicts as a table, and each text with its faults."""
        # Imported here: the view takes longer to load than the client.
        from dramaturg.report.card import card

        return card(_sample(self.message))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One comparison of two texts."""

    method: str
    """"roles", "criterion" with the id of a criterion, or the name of a baseline."""
    judge: str
    """The registered name of the judge."""
    preferred: str | None
    """"first", "second" or "tie". None: an abstention."""
    abstain_reason: str | None
    """The reason of an abstention. None: it does not abstain."""
    confidence: float | None
    """The measured probability that the preference is right, from 0 to 1, if it is stated."""
    measured_confidence: float | None
    """How far the repeats of the judge agree, from 0 to 1. None: no repeats."""
    rationale: str
    """The rationale, as text."""


@dataclasses.dataclass(frozen=True)
class PairEvaluation:
    """The result of ``evaluate_pair``."""

    comparisons: tuple[Comparison, ...]
    """The comparisons: by roles first, then by each criterion, then the baselines as requested."""
    message: PairResult = dataclasses.field(repr=False)
    """The result as the gateway returned it."""

    def to_pandas(self) -> pandas.DataFrame:
        """Two rows for each comparison; see ``Evaluation.to_pandas``."""
        return pandas_frame(_rows(self.message))

    def _repr_html_(self) -> str:
        """The card of the comparison in a notebook."""
        # Imported here: the view takes longer to load than the client.
        from dramaturg.report.card import card

        return card(_sample(self.message))


ScriptsEvaluation: TypeAlias = "Evaluation[ScriptsResult]"
TextsEvaluation: TypeAlias = "Evaluation[TextsResult]"


def scripts_evaluation(result: ScriptsResult) -> ScriptsEvaluation:
    """The evaluation that a message holds."""
    return Evaluation(_candidates(result, [(one.candidate_id, one) for one in result.candidates]), result)


def texts_evaluation(result: TextsResult) -> TextsEvaluation:
    """The evaluation that a message holds."""
    return Evaluation(_candidates(result, [(one.text_id, one) for one in result.texts]), result)


def pair_evaluation(result: PairResult) -> PairEvaluation:
    """The evaluation that a message holds."""
    # A comparison has two rows, that of the first text first.
    compared = zip(comparisons(result), _rows(result)[::2], strict=True)
    return PairEvaluation(tuple(_comparison(one.method, row) for one, row in compared), result)


def _rows(result: ScriptsResult | TextsResult | PairResult) -> list[RunResult]:
    return flatten(_sample(result))


def _sample(result: ScriptsResult | TextsResult | PairResult) -> RunSample:
    if isinstance(result, ScriptsResult):
        return RunSample(scripts=result, sample_id=result.task.id)
    if isinstance(result, TextsResult):
        return RunSample(texts=result, sample_id=result.task.id)
    return RunSample(pair=result, sample_id=result.id)


def _candidates(
    result: ScriptsResult | TextsResult, results: Iterable[tuple[str, CandidateResult | TextResult]]
) -> tuple[CandidateVerdicts, ...]:
    rows = iter(_rows(result))
    return tuple(
        CandidateVerdicts(name, one.model, tuple(_verdict(verdict, next(rows)) for verdict in one.verdicts))
        for name, one in results
    )


def _verdict(verdict: verdict_pb2.Verdict, row: RunResult) -> Verdict:
    """A verdict with the facts of its row."""
    return Verdict(
        criterion=verdict.criterion,
        passed={"PASS": True, "FAIL": False}.get(outcome_name(verdict.outcome)),
        score=verdict.score if verdict.HasField("score") else None,
        confidence=verdict.confidence if verdict.HasField("confidence") else None,
        measured_confidence=_measured(row),
        abstain_reason=_abstain_reason(row),
        rationale=verdict.rationale,
        findings=tuple(
            Finding(
                kind=finding_name(one.kind),
                steps=tuple(one.step_indices),
                description=one.description,
                constraint=one.constraint,
                missing_step=one.missing_step,
            )
            for one in verdict.findings
        ),
        judge=row.judge,
    )


def _measured(row: RunResult) -> float | None:
    return row.measured_confidence if row.HasField("measured_confidence") else None


def _abstain_reason(row: RunResult) -> str | None:
    return abstention_name(row.abstain_reason) if row.outcome == verdict_pb2.OUTCOME_ABSTAIN else None


_PREFERRED = {1.0: "first", 0.5: "tie", 0.0: "second"}
"""What the value of the first text says."""


def _comparison(method: str, row: RunResult) -> Comparison:
    return Comparison(
        method=method,
        judge=row.judge,
        preferred=_PREFERRED[row.value] if row.HasField("value") else None,
        abstain_reason=_abstain_reason(row),
        confidence=row.confidence if row.HasField("confidence") else None,
        measured_confidence=_measured(row),
        rationale=row.rationale,
    )
