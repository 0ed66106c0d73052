"""Has a model under test write decisions, and scenarios before them (Choice-75).

Decisions (section 3 and appendix C) are answered in plain text, as in the paper, so that JSON errors do not
affect the measured choices. Demonstrations have the form of the question. Each is a pair of messages that
precedes it. Unclear answers choose no option.

A scenario (section 2.4 and appendix B) leads to one of two options. The target option is shown as the way
taken and the other as the way left, regardless of their order in the request. The question for the second
option is that for the first with the options exchanged, as in the paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dramaturg.api.common.v1 import decision_pb2, verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice, Decision
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2 import MESSAGE_ROLE_ASSISTANT, Message
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Answer
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.judge.provenance import merge
from dramaturg.judge.quotes import names_phrase
from dramaturg.judge.reasoning import blanked
from dramaturg.judge.refusals import is_refusal
from dramaturg.judge.shapes import ListOf, Record, Text
from dramaturg.judge.short_answers import Values, options_of
from dramaturg.judge.steps import is_blank
from dramaturg.service.errors import Violation, invalid_fields
from services.generation.author import SHORT_ANSWER_TOKENS, Author, Written, indented, labelled, with_defaults

_SPELLINGS = {
    "1": decision_pb2.CHOICE_OPTION_1,
    "2": decision_pb2.CHOICE_OPTION_2,
    "3": decision_pb2.CHOICE_EITHER,
    "either": decision_pb2.CHOICE_EITHER,
    "both": decision_pb2.CHOICE_EITHER,
    "either one": decision_pb2.CHOICE_EITHER,
    "it makes little difference": decision_pb2.CHOICE_EITHER,
    "either: both serve the goal about equally well, it makes little difference": decision_pb2.CHOICE_EITHER,
    "either, as both come to about the same for the goal": decision_pb2.CHOICE_EITHER,
    "either one, since they have similar effect when it comes to the goal": decision_pb2.CHOICE_EITHER,
}
"""The answers that a prompt offers. The third one is in the words of our prompt, the example, the paper."""
_OPTION = r"\boption\s?(?P<{}>[12])\b(?:\s?\([^()\n]{{0,500}}\)|\s?[\"“][^\"“”\n]{{0,500}}[\"”])?"
_COMPARISON = re.compile(
    r"(?P<before>(?:given|since|because|as|considering|with|in|for|under|based on|due to)\b"
    r"[^?\n]{0,1000},\s(?:the\s)?)?"
    rf"{_OPTION.format('better')}\s(?:is|would be|seems|appears to be)\s(?:clearly\s)?(?:the\s|a\s)?"
    r"(?:better|preferable|more (?:reasonable|suitable|practical))(?:\s(?:choice|option|way))?"
    rf"\s(?:than|to)\s{_OPTION.format('worse')}(?P<rest>[^?]{{0,2000}})",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"\*\*|__|`")
_NAMES_OPTION = re.compile(r"\b(?:option|either|both|neither)\b", re.IGNORECASE)
_QUALIFIES = re.compile(rf"{_NAMES_OPTION.pattern}|\b(?:if|unless|only|when|but|however)\b", re.IGNORECASE)
_ANSWERS = {
    decision_pb2.CHOICE_OPTION_1: "Option 1",
    decision_pb2.CHOICE_OPTION_2: "Option 2",
    decision_pb2.CHOICE_EITHER: "Either",
}
_SWAPPED = {
    decision_pb2.CHOICE_OPTION_1: decision_pb2.CHOICE_OPTION_2,
    decision_pb2.CHOICE_OPTION_2: decision_pb2.CHOICE_OPTION_1,
    decision_pb2.CHOICE_EITHER: decision_pb2.CHOICE_EITHER,
}
_LONGEST_DECISION = 100_000
_FRAME = ("goal", "option_1", "option_2")
_VERB_PHRASE, _PROFILE = "verb_phrase", "profile"


def read_choice(text: str, option_1: str, option_2: str) -> Choice.ValueType | None:
    """Reads the choice of an answer: by number, as "Option 1", in the option's own words, or by a comparison.

    A comparison names both options in one sentence: "Given that the library is closed, Option 2 is better
    than Option 1." Nothing before or after it may name an option.

    Args:
        text: The text of the model.
        option_1: The option that was shown first.
        option_2: The option that was shown second.

    Returns:
        The choice, in the order shown, or None where it is unclear.
    """
    choice = _choices(option_1, option_2).value_of(text)
    return choice if choice is not None else _compared(text)


@lru_cache(maxsize=64)  # a decision is asked of several models, repeatedly and in both orders
def _choices(option_1: str, option_2: str) -> Values[Choice.ValueType]:
    own = [option.casefold().strip(" .!;,") for option in (option_1, option_2)]
    words = {} if own[0] == own[1] else dict(zip(own, _SPELLINGS.values(), strict=False))
    return options_of({**words, **_SPELLINGS})


def _compared(text: str) -> Choice.ValueType | None:
    """The better option of an answer that begins with a comparison. None: there is none, or it is unclear."""
    compared = _COMPARISON.fullmatch(_EMPHASIS.sub("", blanked(text)).strip())
    if compared is None or compared["better"] == compared["worse"]:
        return None
    is_unclear = _NAMES_OPTION.search(compared["before"] or "") or _QUALIFIES.search(compared["rest"])
    return None if is_unclear else _SPELLINGS[compared["better"]]


class OptionChooser:
    """Chooses between two options with a model.

    The overall goal of a decision is not shown: in the paper only the writers of scenarios see it.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._question = library.load("choose_option", content=("decision",))
        self._again = library.load("choose_again")
        naive = library.load("decision_naive", content=(*_FRAME, "scenario"))
        story = library.load("decision_story", content=(*_FRAME, "situation"), parts=(_VERB_PHRASE, _PROFILE))
        self._frames = {
            pb.DECISION_PROMPT_UNSPECIFIED: naive,
            pb.DECISION_PROMPT_NAIVE: naive,
            pb.DECISION_PROMPT_STORY: story,
        }

    async def choose(self, request: pb.ChooseOptionRequest) -> pb.ChooseOptionResponse:
        """Asks for the decision, and once more if the answer is unclear or an explanation that is cut off.

        Swapping affects its own options, not those of the demonstrations.

        Raises:
            ServiceError: INVALID_ARGUMENT, or the model gives no answer.
        """
        _require_choices(request.demonstrations)
        shown = _swap(request.decision) if request.options_swapped else request.decision
        frame = self._frames[request.prompt]
        messages = list(self._messages(request, shown, frame))
        options = with_defaults(request.options, temperature=0.0, max_output_tokens=SHORT_ANSWER_TOKENS)
        # All three are of the procedure, whether or not the last one was needed.
        prompts = [one.reference for one in (self._question, frame, self._again)]
        written = await self._author.write(messages, options, prompts=prompts)
        choice, provenance = _choice(written, shown), written.provenance
        if choice is None and _is_explanation(written):
            messages.append(Message(role=MESSAGE_ROLE_ASSISTANT, text=written.text))
            messages.extend(self._again.render({}))
            written = await self._author.write(messages, options)
            choice, provenance = _choice(written, shown), merge([provenance, written.provenance])
        response = pb.ChooseOptionResponse(text=written.text, provenance=provenance)
        response.provenance.parameters["options_swapped"] = str(request.options_swapped).lower()
        if written.abstention is not None:
            response.abstain_reason = written.abstention.reason
        elif choice is None:
            response.abstain_reason = (
                verdict_pb2.ABSTAIN_REASON_REFUSED
                if is_refusal(written.text)
                else verdict_pb2.ABSTAIN_REASON_UNPARSABLE
            )
        else:
            response.choice = _SWAPPED[choice] if request.options_swapped else choice
        return response

    def _messages(self, request: pb.ChooseOptionRequest, shown: Decision, frame: Prompt) -> Iterator[Message]:
        *system, question = self._ask(shown, frame)
        yield from system
        for demonstration in request.demonstrations:
            yield self._ask(demonstration.decision, frame)[-1]
            yield Message(role=MESSAGE_ROLE_ASSISTANT, text=_ANSWERS[demonstration.choice])
        yield question

    def _ask(self, decision: Decision, frame: Prompt) -> list[Message]:
        told = frame.render(
            {
                "goal": indented(decision.goal),
                "option_1": indented(decision.option_1),
                "option_2": indented(decision.option_2),
                "scenario": indented(decision.scenario),
                "situation": _situation(decision.scenario, frame),
            }
        )
        fenced = fence("decision", told[-1].text, limit=_LONGEST_DECISION)
        return self._question.render({"decision": fenced.text})


def _choice(written: Written, shown: Decision) -> Choice.ValueType | None:
    if written.abstention is not None:
        return None
    return read_choice(written.text, shown.option_1, shown.option_2)


def _is_explanation(written: Written) -> bool:
    """Whether an answer without a choice has text that is no refusal, whole or cut off at the token cap."""
    reason = written.abstention.reason if written.abstention is not None else 0
    is_text = reason in (0, verdict_pb2.ABSTAIN_REASON_TRUNCATED) and bool(written.text.strip())
    return is_text and not is_refusal(written.text)


def _situation(scenario: str, frame: Prompt) -> str:
    """The scenario in a sentence about Doe; a profile, which has several lines, in lines of its own."""
    if not frame.parts:
        return ""
    text = indented(scenario)
    if "\n" in text or text.startswith("- "):
        return f"{frame.parts[_PROFILE]}\n    {text}"
    return f"{frame.parts[_VERB_PHRASE]} {text.removesuffix('.')}."


def _require_choices(demonstrations: Sequence[pb.DecisionDemonstration]) -> None:
    known = ", ".join(map(Choice.Name, _ANSWERS))
    violations = [
        Violation(f"demonstrations[{index}].choice", f"must be one of {known}")
        for index, demonstration in enumerate(demonstrations)
        if demonstration.choice not in _ANSWERS
    ]
    if violations:
        raise invalid_fields(violations)


def _swap(decision: Decision) -> Decision:
    swapped = Decision()
    swapped.CopyFrom(decision)
    swapped.option_1, swapped.option_2 = decision.option_2, decision.option_1
    return swapped


TEMPERATURE = 0.75
"""The default temperature (appendix B)."""
MUSTS = ("preferences", "interests", "financial situation")
"""The default attributes of a profile (appendix B)."""

_TARGETS = (decision_pb2.CHOICE_OPTION_1, decision_pb2.CHOICE_OPTION_2)
_LONGEST_MATERIAL = 200_000
_SHOWN = ("overall_goal", "goal", "taken", "left", "scenario")
_GAP, _NO_GAP = "gap", "none"
# No text of a request has it: ``indented`` shows control characters as pictures.
_ABSENT = "\0"


class ScenarioWriter:
    """Writes scenarios with a model.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        fixed, content = (ANSWER_PLACEHOLDER,), ("demonstrations", "decision")
        self._author = author
        lists = ("musts", "must_nots")
        self._direct = _Question(
            library.load("write_scenario", fixed=fixed, content=content),
            library.load("scenario_decision", content=_SHOWN, parts=(_GAP,)),
        )
        self._indirect = _Question(
            library.load("write_scenario_behind", fixed=fixed, content=content),
            library.load("scenario_decision_behind", content=(*_SHOWN, "reason"), parts=(_GAP,)),
        )
        self._profile = _Question(
            library.load("write_profile", fixed=fixed, content=(*content, *lists)),
            library.load("scenario_decision_profile", content=_SHOWN, parts=(_GAP,)),
        )

    async def write(self, request: pb.WriteScenarioRequest) -> pb.WriteScenarioResponse:
        """Writes one scenario.

        Raises:
            ServiceError: INVALID_ARGUMENT, or the model gives no answer.
        """
        violations = list(_violations(request))
        if violations:
            raise invalid_fields(violations)
        options = with_defaults(request.options, temperature=TEMPERATURE)
        if request.form == pb.SCENARIO_FORM_USER_PROFILE:
            response = _respond(await self._write_profile(request, options))
        elif request.form == pb.SCENARIO_FORM_HARD_VERB_PHRASE:
            response = await self._write_hard(request, options)
        else:
            response = _respond(await self._write_phrase(request, options))
        brief = request.brief
        response.leaks_option = any(
            names_phrase(response.scenario, option) for option in (brief.option_1, brief.option_2)
        )
        return response

    async def _write_hard(
        self, request: pb.WriteScenarioRequest, options: JudgeOptions
    ) -> pb.WriteScenarioResponse:
        """Two calls: a scenario that leads to the option, then one that leads to that scenario (Figure 2)."""
        base = await self._write_phrase(request, options, base=True)
        if base.value is None:
            return _respond(base)
        examples = [
            _Example.of(one.brief, one.target, one.base_scenario, one.scenario)
            for one in request.demonstrations
        ]
        question = _Example.of(request.brief, request.target, base.value)
        hard = await self._ask(self._indirect, examples, question, PhraseForm(base.value), options)
        response = _respond(hard, base.provenance)
        response.base_scenario = base.value
        return response

    async def _write_phrase(
        self, request: pb.WriteScenarioRequest, options: JudgeOptions, *, base: bool = False
    ) -> Answer[str]:
        examples = [
            _Example.of(one.brief, one.target, "", one.base_scenario if base else one.scenario)
            for one in request.demonstrations
        ]
        question = _Example.of(request.brief, request.target)
        return await self._ask(self._direct, examples, question, PhraseForm(), options)

    async def _write_profile(self, request: pb.WriteScenarioRequest, options: JudgeOptions) -> Answer[str]:
        examples = [_Example.of(one.brief, one.target, "", one.scenario) for one in request.demonstrations]
        question = _Example.of(request.brief, request.target)
        values = {
            "musts": _listed("musts", request.musts or MUSTS),
            "must_nots": _listed("must nots", [question.taken, question.left, *request.must_nots]),
        }
        return await self._ask(self._profile, examples, question, ProfileForm(), options, **values)

    async def _ask(
        self,
        question: _Question,
        examples: Sequence[_Example],
        asked: _Example,
        form: PhraseForm | ProfileForm,
        options: JudgeOptions,
        **values: str,
    ) -> Answer[str]:
        shown = [
            fence(f"example {number}", question.show(example), limit=_LONGEST_MATERIAL).text
            for number, example in enumerate(examples, start=1)
        ]
        values["demonstrations"] = "\n".join(shown)
        values["decision"] = fence("decision", question.show(asked), limit=_LONGEST_MATERIAL).text
        answer = await self._author.asker.ask(question.prompt, values, form, options)
        answer.provenance.prompts.append(question.frame.reference)
        return answer


@dataclass(frozen=True)
class _Example:
    """A decision with its target option and its known scenarios."""

    brief: pb.ScenarioBrief
    taken: str
    left: str
    between: str
    scenario: str

    @classmethod
    def of(
        cls, brief: pb.ScenarioBrief, target: Choice.ValueType, between: str = "", scenario: str = ""
    ) -> _Example:
        ways = brief.option_1, brief.option_2
        taken, left = ways if target == decision_pb2.CHOICE_OPTION_1 else ways[::-1]
        return cls(brief, taken, left, between, scenario)


@dataclass(frozen=True)
class _Question:
    """A prompt, and the frame of the decisions in it."""

    prompt: Prompt
    frame: Prompt

    def show(self, example: _Example) -> str:
        """The decision in the frame; without a scenario it has the frame's gap."""
        values = {
            "overall_goal": example.brief.overall_goal,
            "goal": example.brief.goal,
            "taken": example.taken,
            "left": example.left,
            "reason": example.between,
            "scenario": example.scenario,
        }
        told = {name: indented(text) if text.strip() else _ABSENT for name, text in values.items()}
        gap = self.frame.parts[_GAP]
        if told["scenario"] == _ABSENT and gap != _NO_GAP:
            told["scenario"] = gap
        lines = self.frame.render(told)[-1].text.split("\n")
        return "\n".join(line for line in lines if _ABSENT not in line)


def _respond(answer: Answer[str], before: Provenance | None = None) -> pb.WriteScenarioResponse:
    response = pb.WriteScenarioResponse(scenario=answer.value or "", provenance=answer.provenance)
    if before is not None:
        response.provenance.CopyFrom(merge([before, answer.provenance]))
    if answer.abstention is not None:
        response.failure = answer.abstention.explanation
        response.abstain_reason = answer.abstention.reason
    return response


def _listed(label: str, items: Sequence[str]) -> str:
    lines = labelled({str(number): item for number, item in enumerate(items, start=1)})
    return fence(label, lines, limit=_LONGEST_MATERIAL).text


def _violations(request: pb.WriteScenarioRequest) -> Iterator[Violation]:
    targets = " or ".join(map(Choice.Name, _TARGETS))
    if request.target not in _TARGETS:
        yield Violation("target", f"must be {targets}")
    if request.form != pb.SCENARIO_FORM_USER_PROFILE:
        for field in ("musts", "must_nots"):
            if getattr(request, field):
                yield Violation(field, "is only for SCENARIO_FORM_USER_PROFILE")
    is_hard = request.form == pb.SCENARIO_FORM_HARD_VERB_PHRASE
    for index, demonstration in enumerate(request.demonstrations):
        if demonstration.target not in _TARGETS:
            yield Violation(f"demonstrations[{index}].target", f"must be {targets}")
        if is_hard and not demonstration.base_scenario.strip():
            yield Violation(
                f"demonstrations[{index}].base_scenario", "is required for SCENARIO_FORM_HARD_VERB_PHRASE"
            )


class PhraseForm:
    """The form of an explanation and a verb phrase.

    Args:
        base: The scenario that the phrase leads to, which it must not repeat. Empty: none.
    """

    name = "scenario"
    shape = Record(
        {
            "idea": Text("what could lead there, and how", optional=True),
            "scenario": Text("the verb phrase alone, such as would follow the person's name"),
        }
    )

    def __init__(self, base: str = "") -> None:
        self._base = base

    def parse(self, value: Any) -> str:
        """Returns the phrase on one line, without a full stop.

        Raises:
            UnclearAnswerError: The answer has no scenario, or repeats the base.
        """
        phrase = value.get("scenario") if isinstance(value, Mapping) else None
        if not isinstance(phrase, str) or is_blank(phrase):
            raise UnclearAnswerError("the answer has no scenario")
        written = " ".join(phrase.split()).removesuffix(".")
        if self._base and written.casefold() == self._base.casefold():
            raise UnclearAnswerError("the scenario is the one that it must lead to")
        return written


class ProfileForm:
    """The form of an explanation and the lines of a profile."""

    name = "profile"
    shape = Record(
        {
            "idea": Text("which trait of the person leads to the way taken, and how", optional=True),
            "profile": ListOf(Text("one line of the profile, such as Name: Doe")),
        }
    )

    def parse(self, value: Any) -> str:
        """Returns the profile as a list with dashes.

        Raises:
            UnclearAnswerError: The answer has no profile.
        """
        lines = value.get("profile") if isinstance(value, Mapping) else None
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise UnclearAnswerError("the answer has no profile")
        written = [" ".join(line.split()).removeprefix("- ") for line in lines if not is_blank(line)]
        if not written:
            raise UnclearAnswerError("the profile is empty")
        return "\n".join(f"- {line}" for line in written)
