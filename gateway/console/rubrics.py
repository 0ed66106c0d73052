"""The rubric of a form: a ready one, or criteria that the visitor writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.formats.rubric import BUILTIN, ready_rubrics
from dramaturg.service.errors import invalid

OWN = "own"
"""The value of the choice for criteria that the visitor writes."""
_FIELDS = ("id", "about", "lowest", "highest", "anchors")
_MOST = 50
_NUMBER = re.compile(r"-?\d{1,4}")


def rubric_choices() -> Sequence[tuple[str, str, str]]:
    """The value, name and description of each ready rubric."""
    return [
        (f"{BUILTIN}{one.name}", one.name.replace("_", " "), one.about) for one in ready_rubrics().values()
    ]


def criteria_fields(
    form: Mapping[str, str], example: Sequence[Mapping[str, str]] = ()
) -> list[dict[str, str]]:
    """The fields of the criteria that a form has, to show them again; an empty one at least."""
    found = [
        {name: form.get(f"criterion.{place}.{name}", "") for name in _FIELDS}
        for place in range(_MOST)
        if any(form.get(f"criterion.{place}.{name}", "").strip() for name in _FIELDS)
    ]
    empty = dict.fromkeys(_FIELDS, "")
    return found or [{**empty, **one} for one in example] or [empty]


def rubric_of(form: Mapping[str, str]) -> Sequence[RubricCriterion]:
    """The criteria of a form; none where it has none.

    Raises:
        ServiceError: INVALID_ARGUMENT: a scale is no scale, or no ready rubric has the name.
    """
    chosen = form.get("rubric", OWN)
    if chosen.startswith(BUILTIN):
        ready = ready_rubrics().get(chosen.removeprefix(BUILTIN))
        if ready is None:
            raise invalid("rubric", f"{chosen[:50]!r} is no ready rubric")
        return ready.criteria
    if chosen != OWN:
        return ()
    return [
        _criterion(place, one)
        for place, one in enumerate(criteria_fields(form), start=1)
        if one["id"].strip() or one["about"].strip()
    ]


def _criterion(place: int, fields: Mapping[str, str]) -> RubricCriterion:
    name = re.sub(r"[^a-z0-9]+", "_", fields["id"].strip().lower()).strip("_")
    about = fields["about"].strip()
    if not name:
        raise invalid(f"criterion {place}", "has no name")
    ends = [fields[end].strip() for end in ("lowest", "highest")]
    if not any(ends):
        return RubricCriterion(id=name, passes=about)
    if not all(_NUMBER.fullmatch(end) for end in ends):
        raise invalid(f"criterion {place}", "has no scale: lowest and highest score are whole numbers")
    scale = CriterionScale(lowest=int(ends[0]), highest=int(ends[1]))
    for line in filter(None, map(str.strip, fields["anchors"].splitlines())):
        score, colon, meaning = line.partition(":")
        if not colon or not _NUMBER.fullmatch(score.strip()):
            raise invalid(f"criterion {place}", f"{line[:50]!r} is not of the form SCORE: MEANING")
        scale.anchors.add(value=int(score), meaning=meaning.strip())
    return RubricCriterion(id=name, description=about, scale=scale)
