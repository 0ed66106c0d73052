"""What the command line sets in every row: judges, models, mechanism, gold answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dramaturg.api.evaluation.v1 import evaluation_service_pb2
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection


class MechanismName(StrEnum):
    """Who judges (``evaluation.v1.Mechanism``)."""

    AGENTS = "agents"
    SINGLE_JUDGE = "single-judge"


class GoldAnswerName(StrEnum):
    """Where the gold answer comes from (``evaluation.v1.GoldAnswerSource``)."""

    POOLED = "pooled"
    DIRECT = "direct"
    NONE = "none"


_MECHANISMS = {
    MechanismName.AGENTS: evaluation_service_pb2.MECHANISM_AGENTS,
    MechanismName.SINGLE_JUDGE: evaluation_service_pb2.MECHANISM_SINGLE_JUDGE,
}
_SOURCES = {
    GoldAnswerName.POOLED: evaluation_service_pb2.GOLD_ANSWER_SOURCE_POOLED,
    GoldAnswerName.DIRECT: evaluation_service_pb2.GOLD_ANSWER_SOURCE_DIRECT,
    GoldAnswerName.NONE: evaluation_service_pb2.GOLD_ANSWER_SOURCE_NONE,
}


@dataclass(frozen=True)
class Overrides:
    """What the command line sets; what it leaves out stays as the row has it."""

    judges: Sequence[tuple[str, str]] = ()
    """(role, judge) pairs. They replace the row's judges of the same roles; several of one are a panel."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The model of every judge of a role, by role."""
    model: str = ""
    """The model of all other judges."""
    mechanism: MechanismName | None = None
    """Who judges."""
    gold_answer: GoldAnswerName | None = None
    """Where the gold answer comes from. A gold answer that the row brings is then left out."""

    @classmethod
    def parse(
        cls,
        judges: Iterable[str],
        models: Iterable[str],
        mechanism: MechanismName | None,
        gold_answer: GoldAnswerName | None,
    ) -> Overrides:
        """Reads ROLE=NAME and ROLE=MODEL or MODEL, as the command line has them.

        Raises:
            ValueError: One of them is malformed, or a model is set twice.
        """
        pairs = []
        for text in judges:
            role, equals, name = text.partition("=")
            if not (role and equals and name):
                raise ValueError(f"--judge {text!r} is not of the form ROLE=NAME")
            pairs.append((role, name))
        by_role: dict[str, str] = {}
        for text in models:
            role, equals, model = text.partition("=")
            if not equals:
                role, model = "", text
            if not model or (equals and not role):
                raise ValueError(f"--model {text!r} is not of the form ROLE=MODEL or MODEL")
            if role in by_role:
                raise ValueError(f"--model sets the model {f'of {role}' if role else 'of all'} twice")
            by_role[role] = model
        return cls(tuple(pairs), by_role, by_role.pop("", ""), mechanism, gold_answer)

    def apply(self, request: EvaluateScriptsRequest) -> None:
        """Sets them in a request."""
        named = {role for role, _ in self.judges}
        selections = [selection for selection in request.judges if selection.role not in named]
        selections += [JudgeSelection(role=role, judge=name) for role, name in self.judges]
        for role, model in self.models.items():
            mine = [selection for selection in selections if selection.role == role]
            if not mine:
                mine = [JudgeSelection(role=role)]
                selections += mine
            for selection in mine:
                selection.model = model
        del request.judges[:]
        request.judges.extend(selections)
        if self.model:
            request.options.model = self.model
        if self.mechanism is not None:
            request.mechanism = _MECHANISMS[self.mechanism]
        if self.gold_answer is not None:
            request.gold_answer_source = _SOURCES[self.gold_answer]
            request.ClearField("gold_answer")
