"""Asks a model under test for a decision (Choice-75, section 3 and appendix C).

The model answers in plain text, as in the paper, so that JSON errors do not affect the measured choices.
Demonstrations have the form of the question. Each is a pair of messages that precedes it.

Unclear answers choose no option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dramaturg.api.common.v1 import decision_pb2, verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice, Decision
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2 import MESSAGE_ROLE_ASSISTANT, Message
from dramaturg.judge.fence import fence
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.judge.provenance import merge
from dramaturg.judge.reasoning import blanked
from dramaturg.judge.refusals import is_refusal
from dramaturg.judge.short_answers import options_of
from dramaturg.service.errors import Violation, invalid_fields
from services.generation.author import SHORT_ANSWER_TOKENS, Author, Written, with_defaults
from services.generation.authoring.excerpts import indented

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
    own = [option.casefold().strip(" .!;,") for option in (option_1, option_2)]
    words = {} if own[0] == own[1] else dict(zip(own, _SPELLINGS.values(), strict=False))
    choice = options_of({**words, **_SPELLINGS}).value_of(text)
    return choice if choice is not None else _compared(text)


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
