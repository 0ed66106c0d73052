"""Tells sentences that choose what they name from those that only speak of it.

A sentence counts as a choice if it has one of a few positive forms and nothing in it clouds that: no
negation, condition, comparison or question. What stands after its "because" may say no; it gives the reason.
The lists are English.
"""

from __future__ import annotations

import re

NAMED = "\ue000"
"""What stands in a sentence for the choice that it names. A private character: no text of ours has it."""

LEAD_IN = (
    r"(?:(?:the\s+|my\s+)?(?:(?:final|correct|right|best|better)\s+)?"
    r"(?:answer|choice|option)\s*(?:is\b|:|=)\s*:?\s*"
    r"|(?:i(?:\s+would|'d|'ll|\s+will)?\s+)?(?:choose|pick|select|prefer|go\s+with)\s+)"
)
"""A pattern for how an answer is announced."""

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
    rf"choice\s+is|option\s+is|(?:better|best|sense|sensible|reasonable)\s+(?:for\s+\w+\s+)?to)\b[^{NAMED}]*{NAMED}"
)
_CLOUDED = re.compile(
    r"\b(?:not|no|never|nor|neither|none|cannot|hardly|barely|without|instead|rather|than|except|but|unless|if|"
    r"whether|would\s+have|avoid\w*|reject\w*|exclud\w*|rul(?:e|es|ed|ing)\s+out|against|unlike|wors[et]|wrong|"
    r"bad|poor|less|least|unlikely|impossible|infeasible|unfeasible|impractical|unsuitable|unavailable|"
    r"undesirable|inconvenient|fail\w*|although|though|however|too)\b|n't\b|\?"
)
_UNDECIDED = re.compile(
    r"\b(?:depends|maybe|perhaps|unclear|unsure|undecided|uncertain|(?:the\s+)?other\s+(?:option|one|way|choice)|"
    r"the\s+other\b|the\s+former|the\s+latter|opposite|(?:not|n't)\s+(?:sure|certain|enough|know)|"
    r"(?:cannot|can't|unable\s+to)\s+(?:tell|say|decide|determine|choose|answer))\b"
)


def chooses(text: str, *, in_any_form: bool = False) -> bool:
    """Whether a text clearly chooses the one thing that it names.

    Args:
        text: The text, in lower case, with ``NAMED`` wherever the thing is named.
        in_any_form: Whether naming it without a cloud is enough.
    """
    if _UNDECIDED.search(text):
        return False
    naming = [sentence for sentence in _SENTENCE_END.split(_REPEATED.sub(NAMED, text)) if NAMED in sentence]
    claims = [_claim(sentence) for sentence in naming]
    is_choice = any(claims) if in_any_form else any(map(_is_choice, claims))
    return is_choice and not any(map(_CLOUDED.search, claims))


def _claim(sentence: str) -> str:
    """What a sentence claims, without its reason; empty where the choice is named in the reason alone."""
    consequence = _THEREFORE.split(sentence)[-1]
    reason = _BECAUSE.match(consequence.lstrip(" ,"))
    claim = consequence.rpartition(",")[2] if reason else _BECAUSE.split(consequence)[0]
    return claim if NAMED in claim else ""


def _is_choice(claim: str) -> bool:
    return bool(_ALONE.fullmatch(claim) or _PRAISED.search(claim) or _CHOSEN.search(claim))
