"""The plan of an evaluation of replies: models, raters, pair judges and scorers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.judge.excerpts import require_turns
from dramaturg.judge.roles import AUTHOR, PAIR_JUDGE, RATING_JUDGE, TEXT_SCORER
from dramaturg.service.errors import ServiceError, Violation, invalid_fields
from gateway.evaluations.checks import check_alone, check_distinct
from gateway.judges.registry import Registry
from gateway.judges.selection import JudgeAssignment, Shadow, check_selections, select_judges, select_shadows


@dataclass(frozen=True)
class DialoguesPlan:
    """A valid request and its judges."""

    request: EvaluateDialoguesRequest
    author: JudgeAssignment | None
    """The author of the replies. None where the request holds all replies."""
    rating_judges: tuple[JudgeAssignment, ...]
    """The judges that rate each reply. Empty where ratings are omitted."""
    pair_judges: tuple[JudgeAssignment, ...]
    """The judges that compare each pair. Empty without pairs."""
    text_scorers: tuple[JudgeAssignment, ...]
    """The scorers of each reply. Empty where no scores are requested."""
    shadows: tuple[Shadow, ...] = ()
    """The shadows of the judges of ratings and pairs."""

    def accepted(self) -> EvaluationAccepted:
        """The event that states the plan."""
        replies = len(self.request.models) + len(self.request.replies)
        authors = [self.author] if self.author else []
        assignments = [*authors, *self.rating_judges, *self.pair_judges, *self.text_scorers]
        return EvaluationAccepted(
            judges=[assignment.describe() for assignment in assignments],
            assessment_count=replies * (1 + len(self.rating_judges) + len(self.text_scorers))
            + len(self.request.pairs) * len(self.pair_judges),
        )


def plan_dialogues(request: EvaluateDialoguesRequest, registry: Registry) -> DialoguesPlan:
    """Plans the evaluation of a request that is within the contract's limits.

    Args:
        request: The request.
        registry: The registered judges.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, or with ERROR_REASON_JUDGE_UNKNOWN;
            FAILED_PRECONDITION, ERROR_REASON_ROLE_UNBOUND.
    """
    needed = {
        AUTHOR: request.models,
        RATING_JUDGE: not request.ratings_omitted,
        PAIR_JUDGE: request.pairs,
        TEXT_SCORER: request.replies_scored,
    }
    roles = tuple(role for role, is_needed in needed.items() if is_needed)
    violations = [
        *_check_script(request),
        *_check_replies(request),
        *_check_pairs(request),
        *check_selections(request.judges, roles, registry.roles),
        *check_alone(request.judges, (AUTHOR,)),
    ]
    if violations:
        raise invalid_fields(violations)
    assignments = select_judges(request.judges, roles, registry, request.options.model)
    return DialoguesPlan(
        request,
        next((assignment for assignment in assignments if assignment.role == AUTHOR), None),
        tuple(assignment for assignment in assignments if assignment.role == RATING_JUDGE),
        tuple(assignment for assignment in assignments if assignment.role == PAIR_JUDGE),
        tuple(assignment for assignment in assignments if assignment.role == TEXT_SCORER),
        select_shadows(
            request.shadows, [one for one in assignments if one.role in (RATING_JUDGE, PAIR_JUDGE)], registry
        ),
    )


def _check_script(request: EvaluateDialoguesRequest) -> Iterator[Violation]:
    try:
        require_turns(request.script.utterances, last=dialogue_pb2.SPEAKER_USER, path="script.utterances")
    except ServiceError as error:
        yield from error.violations


def _check_replies(request: EvaluateDialoguesRequest) -> Iterator[Violation]:
    if not request.models and not request.replies:
        yield Violation("models", "must name a model, or replies must not be empty")
    yield from check_distinct("models", request.models)
    seen = set(request.models)
    for index, reply in enumerate(request.replies):
        if reply.model in seen:
            yield Violation(f"replies[{index}].model", f"is {reply.model!r}, which already has a reply")
        seen.add(reply.model)


def _check_pairs(request: EvaluateDialoguesRequest) -> Iterator[Violation]:
    known = {*request.models, *(reply.model for reply in request.replies)}
    seen: set[frozenset[str]] = set()
    for index, pair in enumerate(request.pairs):
        models = frozenset({pair.first_model, pair.second_model})
        for field in ("first_model", "second_model"):
            if (model := getattr(pair, field)) not in known:
                yield Violation(
                    f"pairs[{index}].{field}", f"is {model!r}, which is not among the models and replies"
                )
        if len(models) == 1:
            yield Violation(f"pairs[{index}]", "compares a model with itself")
        elif models in seen:
            yield Violation(f"pairs[{index}]", "repeats an earlier pair: each is judged in both orders")
        seen.add(models)
