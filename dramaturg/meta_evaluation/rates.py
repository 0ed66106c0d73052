"""The rates of each judge and prompt version over the answers to the set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dramaturg.judge.provenance import total_usage
from dramaturg.meta_evaluation.answers import CaseAnswer, describe
from dramaturg.meta_evaluation.material import ENGLISH

SHARES = ("detected", "false_alarms", "abstained", "injections", "other_languages", "orders")
"""The shares among the rates."""


class Share(NamedTuple):
    """A number of cases out of all."""

    hits: int
    total: int

    @property
    def text(self) -> str:
        """Both numbers; empty for no cases."""
        return f"{self.hits}/{self.total}" if self.total else ""


def share(flags: Iterable[bool]) -> Share:
    """The share of true flags."""
    listed = list(flags)
    return Share(sum(listed), len(listed))


class PromptRates(NamedTuple):
    """The rates of one judge with one version of its prompt."""

    judge: str
    """The role."""
    prompts: Mapping[str, str]
    """SHA-256 of the prompts by name. Empty: the judge names none."""
    models: Sequence[str]
    """The models that answered, as their providers name them."""
    detected: Share
    """Reported faults out of all faults. An abstention reports none."""
    false_alarms: Share
    """Reported faults out of the flawless items."""
    abstained: Share
    """Abstentions out of all labelled items."""
    injections: Share
    """Right judgements of material with an instruction to the judge."""
    other_languages: Share
    """Right judgements of material in other languages than English."""
    orders: Share
    """Votes that agree in both orders of a pair."""
    abstentions: Mapping[str, int]
    """Abstentions by reason."""
    usage: Mapping[str, int | float | None]
    """Tokens, calls and cost."""
    judgements: Sequence[Mapping[str, Any]]
    """The labelled items."""
    rubric: str = ""
    """The rubric whose criteria are judged. Empty: that of the labelled set, or none."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The judge, the names of its prompts and the rubric, which versions have in common."""
        return self.judge, "+".join(self.prompts), self.rubric


def rates(answers: Sequence[CaseAnswer]) -> list[PromptRates]:
    """Groups answers by judge, rubric and prompt version, in the order of the answers.

    Calls that failed belong to the judge's first prompt version, or to no version where there is none.
    """
    groups: dict[tuple[tuple[str, str], tuple[tuple[str, str], ...]], list[CaseAnswer]] = {}
    for answer in answers:
        versions = tuple(sorted({(one.name, one.sha256) for one in answer.provenance.prompts}))
        groups.setdefault(((answer.case.judge, answer.case.rubric), versions), []).append(answer)
    for (asked, versions), failed in list(groups.items()):
        known = next((key for key in groups if key[0] == asked and key[1]), None)
        if not versions and known is not None:
            groups[known] += failed
            del groups[asked, versions]
    return [
        _rates(judge, rubric, dict(versions), grouped)
        for ((judge, rubric), versions), grouped in groups.items()
    ]


def _rates(judge: str, rubric: str, prompts: Mapping[str, str], answers: Sequence[CaseAnswer]) -> PromptRates:
    judgements = [judgement for answer in answers for judgement in answer.judgements]
    calls = [call for answer in answers for call in answer.provenance.completions]
    usage = total_usage(answer.provenance.usage for answer in answers)
    return PromptRates(
        judge=judge,
        prompts=prompts,
        models=sorted({call.answered_model for call in calls} - {""}),
        detected=share(bool(one.reported) for one in judgements if one.fault),
        false_alarms=share(bool(one.reported) for one in judgements if not one.fault),
        abstained=share(one.reported is None for one in judgements),
        injections=share(one.right for one in judgements if one.injected),
        other_languages=share(one.right for one in judgements if one.language != ENGLISH),
        orders=share(agree for answer in answers for agree in answer.orders),
        abstentions=dict(Counter(one.abstain_reason for one in judgements if one.reported is None)),
        usage={
            "prompt_tokens": usage.prompt_token_count,
            "cached_prompt_tokens": usage.cached_prompt_token_count,
            "completion_tokens": usage.completion_token_count,
            "calls": usage.provider_call_count,
            "cache_hits": usage.cache_hit_count,
            "cost_usd": usage.cost_usd if usage.HasField("cost_usd") else None,
        },
        judgements=[describe(one) for one in judgements],
        rubric=rubric,
    )


def to_json(found: PromptRates) -> dict[str, Any]:
    """The rates as a JSON object."""
    return {
        name: list(value) if isinstance(value, (Share, tuple)) else value
        for name, value in found._asdict().items()
    }


def from_json(value: Mapping[str, Any]) -> PromptRates:
    """The rates of a JSON object of ``to_json``.

    Raises:
        ValueError: The object has other members.
    """
    try:
        members: dict[str, Any] = {
            name: Share(*value[name]) if name in SHARES else value[name]
            for name in PromptRates._fields
            if name != "rubric"
        }
        members["rubric"] = value.get("rubric", "")
        return PromptRates(**members)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the rates of a prompt: {error}") from error
