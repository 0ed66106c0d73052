"""Reads which of two options an answer chooses. Unclear answers have no choice.

Accepted are the number alone ("1", "(2)", "3."), also announced ("The answer is 2"), the label ("Option 1",
"the second option", "option two"), "either", the option's own words, and sentences that choose one of them.
The third number means either, as in the paper's list of answers (Choice-75, appendix C). Answers that
name no choice or several are refused, and so are sentences that name one without clearly choosing it.

A sentence counts as a choice if it has one of a few positive forms and no negation, condition, comparison or
question. The clause after its "because" may be negative. A line that begins with a choice, or announces one,
commits the answer to it; the explanation may then mention the other option, unless it chooses that one too.
Reasoning between marks is left out. docs/answers.md has the rules. The lists are English.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.judge.reasoning import answer_text

NAMED = "\ue000"
"""The placeholder for the chosen option in a sentence: a private-use character."""

LEAD_IN = (
    r"(?:(?:the\s+|my\s+)?(?:(?:final|correct|right|best|better)\s+)?"
    r"(?:answer|choice|option)\s*(?:is\b|:|=)\s*:?\s*"
    r"|(?:i(?:\s+would|'d|'ll|\s+will)?\s+)?(?:choose|pick|select|prefer|go\s+with)\s+)"
)
"""The pattern of the announcement of an answer."""

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_BECAUSE = re.compile(r"\b(?:because|since|as|due\s+to|given\s+that|so\s+that)\b")
_THEREFORE = re.compile(r"\b(?:therefore|thus|hence|consequently|so(?!\s+that))\b")
_REPEATED = re.compile(rf"{NAMED}(?:[\s,:(–—-]+{NAMED}\)?)+")

_ALONE = re.compile(rf"(?:[^{NAMED}]*,)?\W*(?:{LEAD_IN})?(?:the\s+)?{NAMED}\W*")
_PRAISED = re.compile(
    rf"{NAMED}\s+(?:\w+\s+){{0,3}}?(?:better|best|preferable|preferred|right|correct|ideal|optimal|suitable|"
    r"sensible|reasonable|advisable|recommended|answer|choice|works|fits|suits|sense)\b"
)
_CHOSEN = re.compile(
    r"\b(?:choose|chooses|pick|picks|select|selects|take|takes|prefer|prefers|recommend|recommends|suggest|"
    r"suggests|should|would|will|must|has\s+to|needs\s+to|opts?\s+for|go(?:es)?\s+(?:with|for)|answer\s+is|"
    rf"choice\s+is|option\s+is|(?:better|best|sense|sensible|reasonable)\s+(?:for\s+\w+\s+)?to)\b[^{NAMED}\d]*{NAMED}"
)
_CLOUDED = re.compile(
    r"\b(?:not|no|never|nor|neither|none|cannot|hardly|barely|without|instead|rather|than|except|but|unless|if|"
    r"whether|would\s+have|avoid\w*|reject\w*|exclud\w*|rul(?:e|es|ed|ing)\s+out|against|unlike|wors[et]|wrong|"
    r"bad|poor|less|least|unlikely|impossible|infeasible|unfeasible|impractical|unsuitable|unavailable|"
    r"undesirable|inconvenient|fail\w*|although|though|however|too)\b|n't\b|\?"
    rf"|\bover\s+(?:the\s+)?{NAMED}"
)
_UNDECIDED = re.compile(
    r"\b(?:depends|maybe|perhaps|unclear|unsure|undecided|uncertain|(?:the\s+)?other\s+(?:option|one|way|choice)|"
    r"the\s+other\b|the\s+former|the\s+latter|opposite|(?:not|n't)\s+(?:sure|certain|enough|know)|"
    r"(?:cannot|can't|unable\s+to)\s+(?:tell|say|decide|determine|choose|answer))\b"
)


def chooses(text: str, *, in_any_form: bool = False) -> bool:
    """Whether a text clearly chooses the option that it names.

    Args:
        text: The text, in lower case, with ``NAMED`` in place of the option.
        in_any_form: Whether a mention without negation, condition, comparison or question is enough.
    """
    if _UNDECIDED.search(text):
        return False
    naming = [sentence for sentence in _SENTENCE_END.split(_REPEATED.sub(NAMED, text)) if NAMED in sentence]
    claims = [_claim(sentence) for sentence in naming]
    is_choice = any(claims) if in_any_form else any(map(_is_choice, claims))
    return is_choice and not any(map(_CLOUDED.search, claims))


def _claim(sentence: str) -> str:
    """The claim of a sentence, without its reason. Empty: only the reason names the choice."""
    consequence = _THEREFORE.split(sentence)[-1]
    reason = _BECAUSE.match(consequence.lstrip(" ,"))
    claim = consequence.rpartition(",")[2] if reason else _BECAUSE.split(consequence)[0]
    return claim if NAMED in claim else ""


def _is_choice(claim: str) -> bool:
    return bool(_ALONE.fullmatch(claim) or _PRAISED.search(claim) or _CHOSEN.search(claim))


MAX_LENGTH = 4000
"""The maximum length of an answer in characters, without reasoning. The prompt asks for one line."""

_CHOICES = (decision_pb2.CHOICE_OPTION_1, decision_pb2.CHOICE_OPTION_2, decision_pb2.CHOICE_EITHER)
_EITHER = len(_CHOICES) - 1

_WORDS = {"1": 0, "one": 0, "first": 0, "1st": 0, "2": 1, "two": 1, "second": 1, "2nd": 1, "3": 2, "three": 2}
_NUMBER = r"\s*(?:number\s*)?(1|2|3|one|two|three)\b"
_LABEL = re.compile(
    rf"\boption{_NUMBER}"
    r"|\b(first|second|1st|2nd)\s+(?:option|one|choice|way|alternative)\b"
    # "Either option two" names two choices.
    rf"|\beither\b(?!\s+way)(?:\s+(?:option(?!{_NUMBER})|one|choice|of\s+them)\b)?"
)
_BARE = re.compile(rf"(?:{LEAD_IN})?\(?\s*([123])\s*[).:]*")
_NUMBERED = re.compile(rf"(?:{LEAD_IN})?\(?\s*([123])\b\W*(?=\w|{NAMED})")
_LONE_NUMBER = re.compile(r"(?<![\w.])([123])\s*\)?\s*(?=$|[\n;:,/!?]|\.(?!\d))")
_EMPHASIS = re.compile(rf"[*_`\"“”„«»#\[\]{NAMED}]")


_MARKS = ("\ue001", "\ue002", "\ue003")
"""The placeholders of the three choices: private-use characters."""
_ANY_MARK = "[" + "".join(_MARKS) + "]"
_MIN_EXPLANATION_WORDS = 3
"""The minimum number of words, besides the name of the option, of a sentence that explains the choice."""
MAX_TEXT_LENGTH = 100_000
"""The maximum length of an answer in characters, with reasoning."""
_BOXED = re.compile(r"\$?\\boxed\s?\{(?:\\text\s?\{)?([^{}]{0,200})\}{1,2}\$?")
_SAME = (
    r"(?:both(?:\s+(?:options?|of\s+them|choices|ways))?"
    r"(?:\s+(?:are|work|would\s+work)(?:\s+(?:equally|just\s+as|about\s+as))?"
    r"(?:\s+(?:good|fine|well|ok|okay|possible|suitable|valid|acceptable))?)?(?=[\s.,;!]*(?:$|[.,;!]\s))"
    r"|(?:it|this|that)\s+makes\s+(?:very\s+)?(?:little|no)(?:\s+real)?\s+difference"
    r"|(?:there\s+is\s+)?(?:little|no)(?:\s+real)?\s+(?:difference|preference)"
    r"|it\s+(?:does\s+not|doesn't)\s+(?:really\s+)?matter(?:\s+which(?:\s+one)?)?"
    r"|(?:they|both)\s+are\s+(?:about\s+)?(?:equally\s+\w+|equal|equivalent|the\s+same))"
)
_NO_DIFFERENCE = re.compile(rf"(?m)(?:^|(?<=[.!;,:]\s)|(?<=\bor\s)){_SAME}")
_ENDS_WITH_EITHER = re.compile(rf"\b(?:(?:both|either)(?:\s+(?:are|is)\s+\w+)?|{_SAME})\W*\Z")
_EDGE = r"[^\w\ue001-\ue003]"
_LINE_NUMBER = re.compile(
    rf"(?m)^({_EDGE}{{0,5}}(?:{LEAD_IN})?)\(?([123])(?=[).:\s]{{0,5}}$|[).:]{{0,2}}\s{{0,2}}{_ANY_MARK})"
)
_SO = r"(?:so|thus|therefore|hence|overall|in\s+conclusion|finally)"
_COMMITMENT = re.compile(
    rf"{_EDGE}{{0,5}}(?P<lead>(?:{_SO}{_EDGE}{{1,3}})?{LEAD_IN}|{_SO}{_EDGE}{{1,3}})?{_EDGE}{{0,3}}(?:the\s+)?"
    rf"(?P<choice>{_ANY_MARK})(?:[\s,:().–—-]{{0,5}}(?P=choice))*[\"')]{{0,2}}"
    r"(?P<rest>(?:[.,;:!(–—]|\s-\s|\s(?:because|since|as)\b).*|\s*)\Z",
    re.DOTALL,
)
_EXPLAINS = re.compile(r"[\s.,;:!()–—-]*(?:\Z|(?!(?:or|and|not|but|nor|then)\b)[\w\ue001-\ue003])")
_REASON = re.compile(r"[\s,(–—-]*(?:because|since|as|due\s+to|given)\b|[\s.!)]*(?:\Z|(?<=[.!])\s)")
_COMMITS = re.compile(
    rf"[^\w{NAMED}]*(?:(?:or|no|and|rather|instead)\W+)?(?:{LEAD_IN})?(?:\(?[123][).:]?\s*)?(?:the\s+)?{NAMED}[\"')]{{0,2}}\s*"
    r"(?:\Z|[.:!(–—-]|(?:because|since|as)\b)"
)
_ENDS = re.compile(
    r"(?<!\bthan)(?<!\bto)(?<!\bof)(?<!\bover)(?<!\bwith)(?<!\bfor)(?<!\bby)(?<!\buse)(?<!\bunlike)(?<!\bwithout)"
    rf"\s(?:the\s)?{NAMED}(?:[^\w{NAMED}]*\Z|\s?[:–—]\s|\s-\s|,?\s(?:because|since)\b)"
)
_RETRACTED = re.compile(
    r"\b(?:depends|maybe|perhaps|unclear|unsure|undecided|uncertain|wait|second\s+thoughts?|correction|actually|"
    r"(?:not|n't)\s+(?:sure|certain|enough|know)|"
    r"(?:cannot|can't|unable\s+to)\s+(?:tell|say|decide|determine|choose|answer))\b"
    r"|\?|\bif\b"
)
_PREFERRED_OVER = re.compile(
    rf"({_ANY_MARK})\s+(?:over|rather\s+than|instead\s+of)\s+(?:the\s+)?(?!\1){_ANY_MARK}"
)


def read_choice(text: str, option_1: str, option_2: str) -> Choice.ValueType | None:
    """Reads the choice of an answer.

    Args:
        text: The text of the model.
        option_1: The option that was shown first.
        option_2: The option that was shown second.

    Returns:
        The choice, in the order shown, or None where it is unclear.
    """
    if len(text) > MAX_TEXT_LENGTH:
        return None
    answer = _clean(_BOXED.sub(r" \1 ", answer_text(text)))
    if len(answer) > MAX_LENGTH:
        return None
    bare = _BARE.fullmatch(answer)
    if bare:
        return _CHOICES[int(bare[1]) - 1]
    options = _clean(option_1), _clean(option_2)
    choice = _only_choice(answer, options)
    choice = _committed_choice(answer, options) if choice is None else choice
    return None if choice != decision_pb2.CHOICE_EITHER and _ENDS_WITH_EITHER.search(answer) else choice


def _only_choice(answer: str, options: tuple[str, str]) -> Choice.ValueType | None:
    """Reads an answer that names one choice."""
    named: set[int] = set()
    answer = _mark_own_words(answer, options, named)
    answer, either = _NO_DIFFERENCE.subn(NAMED, answer)
    named |= {_EITHER} if either else set()
    numbered = _NUMBERED.match(answer)
    if numbered:
        answer = answer[numbered.end() :]
    answer = _LABEL.sub(_marker(named), answer)
    named.update(int(number) - 1 for number in _LONE_NUMBER.findall(answer))
    # "Either" always refers to the choice; the name of an option may refer to the option only.
    if len(named) != 1 or not chooses(answer, in_any_form=named == {_EITHER}):
        return None
    choice = named.pop()
    return _CHOICES[choice] if numbered is None or int(numbered[1]) - 1 == choice else None


def _committed_choice(answer: str, options: tuple[str, str]) -> Choice.ValueType | None:
    """Reads an answer that commits itself in a line and explains the choice in other words."""
    marked = _PREFERRED_OVER.sub(r"\1", _mark_choices(answer, options))
    lines = marked.split("\n")
    committed: set[int] = set()
    rest: list[str] = []
    for index, line in enumerate(lines):
        head = _COMMITMENT.match(line)
        is_outer = index in {0, len(lines) - 1}
        if head and (head["lead"] or is_outer) and (not head["rest"] or _EXPLAINS.match(head["rest"])):
            committed.add(_MARKS.index(head["choice"]))
            own = _SENTENCE_END.split(head["rest"])[0]
            # Only a reason may deny something: "Option 1, which is not possible" chooses nothing.
            if not _REASON.match(own) and _CLOUDED.search(_BECAUSE.split(own)[0]):
                return None
            rest += _SENTENCE_END.split(head["rest"])
        else:
            rest += _SENTENCE_END.split(line)
    if len(committed) != 1 or any(map(_RETRACTED.search, rest)):
        return None
    choice = committed.pop()
    others = [mark for index, mark in enumerate(_MARKS) if index != choice]
    for sentence in rest:
        if any(int(number) - 1 != choice for number in _LONE_NUMBER.findall(sentence)):
            return None
        for other in others:
            if other in sentence and _may_choose(sentence, other):
                return None
    return _CHOICES[choice]


def _may_choose(sentence: str, mark: str) -> bool:
    """Whether a sentence may choose the option with this mark."""
    if re.search(rf"\bor\s+(?:the\s+)?{mark}", sentence):
        return True
    if mark == _MARKS[_EITHER] or len(re.findall(r"\w+", sentence)) < _MIN_EXPLANATION_WORDS:
        return True
    claim = "".join(
        NAMED if character == mark else "it" if character in _MARKS else character for character in sentence
    )
    claim = _REPEATED.sub(NAMED, claim)
    if _ENDS.search(claim) or any(map(_COMMITS.match, re.split(r"[,;]|[.!?]\s", claim))):
        return True
    clauses = re.split(r"[,;]|\b(?:but|and|while|whereas)\b", claim)
    return any(
        NAMED in clause and len(clause.split()) > 2 and _is_choice(clause) and not _CLOUDED.search(clause)
        for clause in (claim, *clauses)
    )


def _mark_choices(answer: str, options: tuple[str, str]) -> str:
    """Replaces every name of a choice with the mark of the choice."""
    texts = [option.rstrip(".!;, ") for option in options]
    if texts[0] != texts[1]:
        for index, own in sorted(enumerate(texts), key=lambda entry: -len(entry[1])):
            if own:
                answer = re.sub(rf"(?<!\w){re.escape(own)}(?!\w)", _MARKS[index], answer)
    answer = _LABEL.sub(lambda found: _MARKS[_WORDS.get(found[1] or found[2] or "", _EITHER)], answer)
    answer = _NO_DIFFERENCE.sub(_MARKS[_EITHER], answer)
    return _LINE_NUMBER.sub(lambda found: f"{found[1]}{_MARKS[int(found[2]) - 1]}", answer)


def _clean(text: str) -> str:
    """Normalises to lower case, plain apostrophes, no emphasis and single spaces. Line breaks stay."""
    text = "".join(character for character in text if unicodedata.category(character) != "Cf")
    text = _EMPHASIS.sub("", text.replace("\u2019", "'").casefold())
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _mark_own_words(answer: str, options: tuple[str, str], named: set[int]) -> str:
    """Marks options named by their own words. The longer option goes first: it may contain the other."""
    texts = [option.rstrip(".!;, ") for option in options]
    if texts[0] == texts[1]:
        return answer
    for index, own in sorted(enumerate(texts), key=lambda entry: -len(entry[1])):
        if own:
            answer, found = re.subn(rf"(?<!\w){re.escape(own)}(?!\w)", NAMED, answer)
            named |= {index} if found else set()
    return answer


def _marker(named: set[int]) -> Callable[[re.Match[str]], str]:
    def mark(found: re.Match[str]) -> str:
        word = found[1] or found[2]
        named.add(_WORDS[word] if word else _EITHER)
        return NAMED

    return mark
