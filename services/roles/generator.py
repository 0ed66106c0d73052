"""Generation of subjective roles: coarse and fine ones in one model call (DRPE, section 3.1, Figure 4)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Role
from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesRequest, GenerateRolesResponse
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Answer, Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.provenance import merge
from dramaturg.judge.shapes import ListOf, Record, Text
from services.roles.settings import SourceLimits

COARSE, FINE = "coarse", "fine"
"""The kinds of subjective roles: by occupation, and by familiarity with the topic (DRPE, section 3.1)."""

MAX_TYPE_LENGTH = 200
"""The most characters of a role's type (``judging.v1.Role``)."""
MAX_DESCRIPTION_LENGTH = 2000
"""The most characters of its description."""

ORIGINS = {
    COARSE: pair_judge_service_pb2.ROLE_ORIGIN_SUBJECTIVE_COARSE,
    FINE: pair_judge_service_pb2.ROLE_ORIGIN_SUBJECTIVE_FINE,
}
_QUOTED_LENGTH = 100


class NamedRoles(NamedTuple):
    """The roles of a model's answer."""

    roles: tuple[Role, ...]
    """The roles, coarse ones first, no two equal by wording."""
    dropped: tuple[str, ...]
    """Dropped entries, each with the reason."""


@dataclass(frozen=True)
class RolesForm:
    """The answer form: a given number of roles of each kind."""

    counts: Mapping[str, int]
    """How many are asked for of each kind; none of them 0, coarse before fine."""
    known: tuple[Role, ...] = ()
    """The roles that the others differ from by wording."""

    @property
    def name(self) -> str:
        return "roles"

    @property
    def shape(self) -> Record:
        """One list for each kind."""
        role = Record(
            {
                "type": Text("who they are, in a few words"),
                "description": Text("one sentence: what they know and what they look for in the text"),
            }
        )
        return Record({kind: ListOf(role) for kind in self.counts})

    def parse(self, value: Any) -> NamedRoles:
        """Parses the roles. Invalid, repeated and surplus entries are dropped with a reason.

        Raises:
            UnclearAnswerError: The answer is not an object.
        """
        if not isinstance(value, Mapping):
            raise UnclearAnswerError("the answer is no JSON object")
        roles: list[Role] = []
        dropped: list[str] = []
        wordings = set(map(wording, self.known))
        for kind, wanted in self.counts.items():
            taken = 0
            for entry in _entries(value, kind):
                role = _role(entry, kind)
                problem = _problem(role, wordings)
                if not problem and taken == wanted:
                    problem = f"more than the {wanted} asked for"
                if problem or role is None:
                    dropped.append(f"{kind}: {_quoted(entry)}: {problem}")
                    continue
                wordings.add(wording(role))
                roles.append(role)
                taken += 1
        return NamedRoles(tuple(roles), tuple(dropped))


def wording(role: Role) -> str:
    """The words of a role, without regard to case, punctuation, spaces and forms of the same character."""
    return "\n".join(_words(part) for part in (role.type, role.description))


def _words(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    # By category, because \W matches the vowel signs of many scripts.
    spaced = "".join(
        " " if unicodedata.category(character)[0] in "PZC" else character for character in folded
    )
    return " ".join(spaced.split())


def _entries(value: Mapping[str, Any], kind: str) -> Sequence[Any]:
    entries = value.get(kind, [])
    return entries if isinstance(entries, list) else [entries]


def _role(entry: Any, kind: str) -> Role | None:
    if not isinstance(entry, Mapping):
        return None
    title, description = entry.get("type"), entry.get("description")
    if not isinstance(title, str) or not isinstance(description, str):
        return None
    return Role(
        type=" ".join(title.split()),
        description=" ".join(description.split()),
        origin=ORIGINS[kind],
    )


def _problem(role: Role | None, wordings: set[str]) -> str:
    """The reason to drop an entry; empty if it is valid."""
    if role is None:
        return "has not the members of a role"
    if not role.type or not role.description:
        return "has no type or no description"
    if len(role.type) > MAX_TYPE_LENGTH or len(role.description) > MAX_DESCRIPTION_LENGTH:
        return f"is longer than {MAX_TYPE_LENGTH} and {MAX_DESCRIPTION_LENGTH} characters"
    return "is worded like a role before it" if wording(role) in wordings else ""


def _quoted(entry: Any) -> str:
    if isinstance(entry, Mapping):
        text = ": ".join(str(entry.get(member, "")) for member in ("type", "description"))
    else:
        text = str(entry)
    return text if len(text) <= _QUOTED_LENGTH else text[:_QUOTED_LENGTH] + "..."


DEFAULT_COUNTS = {COARSE: 3, FINE: 2}
"""The default number of roles of each kind, five in total (DRPE, section 4.1)."""

_SOURCE, _KINDS, _COUNTS = "source", "kinds", "counts"


class RoleGenerator:
    """Generates the readers of a text.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: Limits of the prompt.
    """

    def __init__(self, asker: Asker, library: PromptLibrary, limits: SourceLimits) -> None:
        self._prompt = library.load(
            "generate_roles",
            fixed=(_KINDS, ANSWER_PLACEHOLDER),
            content=(_SOURCE, _COUNTS),
            parts=tuple(DEFAULT_COUNTS),
        )
        self._asker = asker
        self._limits = limits

    async def generate(self, request: GenerateRolesRequest) -> GenerateRolesResponse:
        """Generates roles, and asks once more for those that are missing.

        A response without roles has the reason in ``failure``.

        Raises:
            ServiceError: The model call failed.
        """
        asked = {COARSE: request.coarse_count, FINE: request.fine_count}
        counts = {kind: count for kind, count in asked.items() if count} or DEFAULT_COUNTS
        answer = await self._ask(request, counts)
        if answer.value is None:
            return GenerateRolesResponse(failure=_failure(answer), provenance=answer.provenance)
        roles, dropped, provenance = answer.value.roles, answer.value.dropped, answer.provenance
        found = Counter(role.origin for role in roles)
        missing = {
            kind: count - found[ORIGINS[kind]]
            for kind, count in counts.items()
            if count > found[ORIGINS[kind]]
        }
        if missing:
            again = await self._ask(request, missing, roles)
            provenance = merge([provenance, again.provenance])
            if again.value is None:
                dropped = (*dropped, f"asked once more: {_failure(again)}")
            else:
                roles = tuple(
                    sorted((*roles, *again.value.roles), key=lambda role: role.origin != ORIGINS[COARSE])
                )
                dropped = (*dropped, *again.value.dropped)
        return GenerateRolesResponse(
            roles=roles,
            dropped=dropped,
            failure="" if roles else "The model's answer holds no role.",
            provenance=provenance,
        )

    async def _ask(
        self, request: GenerateRolesRequest, counts: Mapping[str, int], known: tuple[Role, ...] = ()
    ) -> Answer[NamedRoles]:
        source = Excerpt((fence("text", request.source, limit=self._limits.source),))
        wanted = " and ".join(f"{count} {kind}" for kind, count in counts.items())
        if known:
            named = "\n".join(f"{role.type}: {role.description}" for role in known)
            shown = fence("readers", named, limit=self._limits.source).text
            wanted += f", besides the following, who are named already\n{shown}\n"
        values = {
            _SOURCE: source.text,
            _KINDS: self._prompt.definitions(list(counts)),
            _COUNTS: wanted,
        }
        answer = await self._asker.ask(self._prompt, values, RolesForm(counts, known), request.options)
        answer.provenance.parameters.update(source.parameters)
        return answer


def _failure(answer: Answer[NamedRoles]) -> str:
    return answer.abstention.explanation if answer.abstention else ""
