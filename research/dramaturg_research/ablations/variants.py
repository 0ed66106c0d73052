"""The ways in which the same samples are judged (ABSEval, Tables 2 and 3, Figures 4 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from dramaturg.api.evaluation.v1 import scripts_pb2 as pb
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.judge_selection import Overrides, parse_judges, parse_models
from dramaturg.judge.roles import ROLES, SCRIPT_JUDGE, SYNTHESIZE, JudgeRole
from dramaturg.results.groups import BASE

FORMS = "model:ROLE=MODEL, model:MODEL, judge:ROLE=NAME, prompts:ROLE=DIR"
"""How the variants are written that name what they change."""

JOINED = "+"
"""The separator of the changes of a variant."""

VARIANTS: Mapping[str, tuple[pb.Mechanism.ValueType, pb.GoldAnswerSource.ValueType]] = MappingProxyType(
    {
        BASE: (pb.MECHANISM_UNSPECIFIED, pb.GOLD_ANSWER_SOURCE_UNSPECIFIED),
        "no-gold-answer": (pb.MECHANISM_UNSPECIFIED, pb.GOLD_ANSWER_SOURCE_NONE),
        "direct-gold-answer": (pb.MECHANISM_UNSPECIFIED, pb.GOLD_ANSWER_SOURCE_DIRECT),
        "single-judge": (pb.MECHANISM_SINGLE_JUDGE, pb.GOLD_ANSWER_SOURCE_NONE),
        "single-judge-with-gold-answer": (
            pb.MECHANISM_SINGLE_JUDGE,
            pb.GOLD_ANSWER_SOURCE_POOLED,
        ),
    }
)
"""The mechanism and the source of the gold answer of each variant of the paper (ABSEval, Tables 2 and 3).
Unspecified ones are those of the row.
"""
NAMES = tuple(VARIANTS)
"""The variants that a name alone says."""
_WRITTEN = (pb.GOLD_ANSWER_SOURCE_POOLED, pb.GOLD_ANSWER_SOURCE_DIRECT)


@dataclass(frozen=True)
class Variant:
    """One way to judge."""

    name: str
    """How it is written on the command line."""
    overrides: Overrides
    """What it sets in every request."""
    prompts: Mapping[str, Path] = field(default_factory=dict)
    """The folder of prompt files of a role's judges, by role."""

    @property
    def folder(self) -> str:
        """The name of the folder of its results."""
        kept = (character if character.isalnum() or character in "-_.=" else "_" for character in self.name)
        return "".join(kept).strip(".") or "_"

    @property
    def environment(self) -> Mapping[str, str]:
        """What the services are told by their environment: which prompt files they use."""
        return {
            f"DRAMATURG_{role.upper().replace('-', '_')}_PROMPTS_DIR": str(folder)
            for role, folder in self.prompts.items()
        }

    def apply(self, request: EvaluateScriptsRequest) -> None:
        """Applies the variant to a request. Judges of roles that are not called are left out."""
        self.overrides.apply(request)
        played = played_roles(request)
        kept = [selection for selection in request.judges if selection.role in played]
        del request.judges[:]
        request.judges.extend(kept)


def parse_variants(texts: Sequence[str], base: Overrides) -> Sequence[Variant]:
    """Reads the variants of the command line without duplicates, the base first.

    Args:
        texts: Each one of ``NAMES`` or of the ``FORMS``, or several joined by "+". None at all: ``NAMES``,
            which are the paper's.
        base: What the command line sets in all of them.

    Raises:
        ValueError: One is malformed.
    """
    wanted = dict.fromkeys([BASE, *(texts or NAMES)])
    variants = [_parse(text, base) for text in wanted]
    folders = [variant.folder for variant in variants]
    if repeated := next((one for one in folders if folders.count(one) > 1), None):
        raise ValueError(f"--variant: two of them would have the folder {repeated!r}")
    return variants


def _parse(text: str, base: Overrides) -> Variant:
    """Reads a variant: one change, or several joined by "+", each made to what the ones before it left."""
    found = Variant(text, base)
    for part in text.split(JOINED):
        found = _change(part.strip(), found)
    return found


def _change(text: str, variant: Variant) -> Variant:
    before = variant.overrides
    if text in VARIANTS:
        mechanism, gold_answer = VARIANTS[text]
        changed = replace(
            before,
            mechanism=mechanism or before.mechanism,
            gold_answer=gold_answer or before.gold_answer,
        )
        return replace(variant, overrides=changed)
    kind, colon, value = text.partition(":")
    if colon and kind == "model":
        models = parse_models("--variant model", [value])
        everybody = models.pop("", "")
        _check_roles(models)
        models = {} if everybody else {**before.models, **models}
        return replace(variant, overrides=replace(before, model=everybody or before.model, models=models))
    if colon and kind == "judge":
        ((role, name),) = parse_judges([value])
        _check_roles([role])
        others = [pair for pair in before.judges if pair[0] != role]
        return replace(variant, overrides=replace(before, judges=[*others, (role, name)]))
    if colon and kind == "prompts":
        role, equals, folder = value.partition("=")
        _check_roles([role])
        if not equals or not Path(folder).is_dir():
            raise ValueError(f"--variant {text!r}: {folder!r} is not a folder")
        return replace(variant, prompts={**variant.prompts, role: Path(folder).resolve()})
    raise ValueError(f"--variant {text!r} is none of {', '.join(NAMES)}, {FORMS}")


def _check_roles(roles: Sequence[str] | Mapping[str, str]) -> None:
    known = [SYNTHESIZE.name, *(name for name, role in ROLES.items() if isinstance(role, JudgeRole))]
    for role in roles:
        if role not in known:
            raise ValueError(f"--variant: {role!r} is none of the roles {', '.join(known)}")


def played_roles(request: EvaluateScriptsRequest) -> frozenset[str]:
    """The roles that the evaluation of a request calls."""
    single = request.mechanism == pb.MECHANISM_SINGLE_JUDGE
    source = request.gold_answer_source
    judges = {
        name
        for name, role in ROLES.items()
        if isinstance(role, JudgeRole) and (role is SCRIPT_JUDGE) == single
    }
    unsaid = source == pb.GOLD_ANSWER_SOURCE_UNSPECIFIED
    written = not single if unsaid else source in _WRITTEN
    return frozenset(judges | ({SYNTHESIZE.name} if written else set()))
