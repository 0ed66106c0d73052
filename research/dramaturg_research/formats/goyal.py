"""The released human study of Goyal et al. 2022, "News Summarization and Evaluation in the Era of GPT-3".

A file is one JSON object: a key an article, each with "article", a member with "text" for each system, and
"annotators": who named the best and the worst summaries, each an ordered list of one system or more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dramaturg.api.alignment.v1 import agreement_pb2
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.kinds.pairs import SEED_TAG
from dramaturg.service.validation import violations

BEST, WORST = "best_summary", "worst_summary"
"""What annotators chose."""
LEAST_VOTES = 2
"""How many annotators must choose a summary for it to be the best or the worst (DRPE, section 4.1)."""
INSTRUCTION = "Write a short summary of the article."
"""What the systems were asked for."""


class LeftOut(NamedTuple):
    """An article that gives no pair."""

    key: str
    """The article's key."""
    reason: str
    """Why it gives none."""
    malformed: bool
    """Whether it is not of the format, rather than without a clear best and worst."""


@dataclass
class Study:
    """The result of a conversion."""

    requests: list[EvaluatePairsRequest] = field(default_factory=list)
    """One for each article with a best and a worst summary, in the order of the file."""
    left_out: list[LeftOut] = field(default_factory=list)
    """The other articles."""
    articles: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """All well-formed articles, as they came."""


def read_study(content: Any, seed: int) -> Study:
    """Makes a pair of each article whose best and worst summary are clear.

    The rule reproduces the 81 pairs of DRPE, section 4.1: of what each annotator listed only the first
    system counts; the best has two votes or more, so has the worst, and they differ.

    Args:
        content: The file's JSON value.
        seed: Decides which of the two is first, for each article.

    Raises:
        TypeError: It is no object.
    """
    if not isinstance(content, dict):
        raise TypeError(f"is not a JSON object but {type(content).__name__}")
    study = Study()
    for key, article in content.items():
        if problem := next(_problems(article), None):
            study.left_out.append(LeftOut(key, problem, malformed=True))
            continue
        study.articles[key] = article
        best, worst = _chosen(article, BEST), _chosen(article, WORST)
        if best is None or worst is None or best == worst:
            missing = " and ".join(name for name, one in (("best", best), ("worst", worst)) if one is None)
            reason = f"no majority for the {missing}" if missing else "one summary is both best and worst"
            study.left_out.append(LeftOut(key, reason, malformed=False))
            continue
        request = _pair(key, article, best, worst, seed)
        if broken := violations(request):
            study.left_out.append(LeftOut(key, f"{broken[0].field}: {broken[0].description}", malformed=True))
        else:
            study.requests.append(request)
    return study


def vote_shares(study: Study, choice: str) -> dict[str, float]:
    """The share of articles, from 0 to 1, in which a system has two votes or more, by system.

    Every system that an annotator listed counts, so the shares need not add up to 1.

    Args:
        study: The study.
        choice: ``BEST`` or ``WORST``.
    """
    wins: Counter[str] = Counter(
        {system: 0 for article in study.articles.values() for system in _systems(article)}
    )
    for article in study.articles.values():
        votes = Counter(system for annotator in article["annotators"] for system in set(annotator[choice]))
        wins.update(system for system, count in votes.items() if count >= LEAST_VOTES)
    return {system: wins[system] / len(study.articles) for system in sorted(wins)}


def agreement_request(study: Study, choice: str) -> agreement_pb2.MeasureAgreementRequest:
    """Asks how far the annotators' sets of systems agree (Krippendorff's alpha with the MASI distance).

    Args:
        study: The study.
        choice: ``BEST`` or ``WORST``.
    """
    request = agreement_pb2.MeasureAgreementRequest(distance=agreement_pb2.LABEL_DISTANCE_MASI)
    for key, article in study.articles.items():
        item = request.items.add(id=key)
        for index, annotator in enumerate(article["annotators"]):
            item.annotations.add(annotator=str(index), labels=sorted(set(annotator[choice])))
    return request


def _chosen(article: Mapping[str, Any], choice: str) -> str | None:
    votes = Counter(annotator[choice][0] for annotator in article["annotators"])
    leaders = [system for system, count in votes.items() if count >= LEAST_VOTES]
    return leaders[0] if len(leaders) == 1 else None


def _pair(key: str, article: Mapping[str, Any], best: str, worst: str, seed: int) -> EvaluatePairsRequest:
    # By the article's own key, so that no article moves when others come or go.
    best_first = random.Random(f"{seed}/{key}").random() < 0.5  # noqa: S311 - an order, no secret
    systems = (best, worst) if best_first else (worst, best)
    first, second = (ComparedText(text=article[system]["text"], model=system) for system in systems)
    return EvaluatePairsRequest(
        id=key,
        source=article["article"],
        instruction=INSTRUCTION,
        first=first,
        second=second,
        human_preference=(
            pair_judge_service_pb2.PREFERENCE_FIRST
            if best_first
            else pair_judge_service_pb2.PREFERENCE_SECOND
        ),
        tags={"best": best, "worst": worst, SEED_TAG: str(seed)},
    )


def _systems(article: Mapping[str, Any]) -> Sequence[str]:
    return [name for name in article if name not in {"article", "annotators"}]


def _problems(article: Any) -> Iterator[str]:
    if not isinstance(article, dict) or not isinstance(article.get("article"), str):
        yield "has no string article"
        return
    systems = _systems(article)
    for name in systems:
        if not isinstance(article[name], dict) or not isinstance(article[name].get("text"), str):
            yield f"{name}: has no string text"
    annotators = article.get("annotators")
    if not isinstance(annotators, list) or not annotators:
        yield "annotators: must be a list that is not empty"
        return
    for index, annotator in enumerate(annotators):
        for choice in (BEST, WORST):
            listed = annotator.get(choice) if isinstance(annotator, dict) else None
            if not isinstance(listed, list) or not listed or not all(one in systems for one in listed):
                yield f"annotators[{index}].{choice}: must list one or more of {', '.join(systems)}"
