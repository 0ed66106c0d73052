"""The rubric judge without a language model: criteria about lengths and quoted words, read by fixed patterns.

A criterion is judged if its definition is one sentence of the form "At most 80 words.", "At least 2
sentences.", "Between 50 and 100 words.", "Contains 'refund'." or "Does not contain 'sorry'.", also after "The
text has" or "The answer". Every other criterion is an abstention: rules cannot judge what words mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.judge import VERSION
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.protocols import ANY_CRITERION, CONTEXT
from dramaturg.judge.verdicts import abstained, failed, passed

_START = r"\s*(?:pass:\s*)?(?:(?:the|a|this)\s(?:text|answer|reply|response|summary)\s)?"
_LENGTH = re.compile(
    _START + r"(?:(?:has|is|uses)\s)?"
    r"(?:(?P<least>at\sleast|no\sfewer\sthan)|at\smost|no\smore\sthan|between\s(?P<low>\d{1,6})\sand|(?P<exact>exactly))"
    r"\s(?P<count>\d{1,6})\s(?P<unit>words?|sentences?|characters?|lines?|paragraphs?)(?:\slong)?\s*\.?\s*",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    _START + r"(?:(?P<not>does\snot\s(?:contain|mention|say)|never\s(?:contains|mentions|says))"
    r"|contains|mentions|says)\s(?:the\s(?:words?|phrase)\s)?"
    r"(?:\"(?P<double>[^\"]{1,200})\"|'(?P<single>[^']{1,200})')\s*\.?\s*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]+[\"')\]\u201d]*(?=\s|\Z)")
_UNKNOWN = "Without a language model, only criteria about lengths and quoted words are judged."
_NO_SCORES = "Without a language model, no criterion with a scale is judged."


class OfflineRubricJudge:
    """Judges criteria that name a length or quoted words; abstains from all others."""

    name = "offline-rubric-judge"
    version = VERSION
    description = "Judges criteria about lengths and quoted words by rules; abstains from all others."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (ANY_CRITERION, CONTEXT)

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges a text."""
        return Assessment(verdicts=[_judge(item, criterion) for criterion in item.criteria])


def _judge(item: JudgeItem, criterion: str) -> Verdict:
    if criterion in item.scales:
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, _NO_SCORES)
    definition, text = item.definitions.get(criterion, ""), item.candidate.text
    if length := _LENGTH.fullmatch(definition):
        return _judge_length(criterion, length, text)
    if quoted := _QUOTED.fullmatch(definition):
        words = quoted["double"] or quoted["single"]
        found = re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE) is not None
        meets = found != bool(quoted["not"])
        said = f"The text {'contains' if found else 'does not contain'} {words!r}."
        return (passed if meets else failed)(criterion, rationale=said)
    return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, _UNKNOWN)


def _judge_length(criterion: str, rule: re.Match[str], text: str) -> Verdict:
    unit = rule["unit"].lower().rstrip("s")
    count, limit = _count(unit, text), int(rule["count"])
    lowest = limit if rule["least"] or rule["exact"] else int(rule["low"] or 0)
    meets = lowest <= count and (count <= limit or bool(rule["least"]))
    noun = unit if count == 1 else f"{unit}s"
    return (passed if meets else failed)(criterion, rationale=f"The text has {count} {noun}.")


def _count(unit: str, text: str) -> int:
    if unit == "character":
        return len(text)
    if unit == "word":
        return len(text.split())
    if unit == "line":
        return sum(bool(line.strip()) for line in text.splitlines())
    if unit == "paragraph":
        return sum(bool(part.strip()) for part in re.split(r"\n[ \t]*\n", text))
    rest = _SENTENCE_END.split(text)[-1].strip()
    return len(_SENTENCE_END.findall(text)) + bool(rest)
