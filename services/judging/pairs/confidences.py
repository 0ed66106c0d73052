"""The confidence of each vote of an answer (DRPE, equation 3)."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from dramaturg.api.generation.v1.generation_service_pb2 import Completion, TokenLogprob
from services.judging.pairs.form import Reading, Vote, read_vote
from services.judging.pairs.placement import locate
from services.judging.pairs.spans import Span, written_ballots


def confidences(completion: Completion, readings: Sequence[Reading], *, numbered: bool) -> list[float | None]:
    """Returns the confidence of each vote, from the tokens of the role's reason and vote.

    A vote has a confidence if the raw answer contains its entry literally and the provider returned the
    tokens of the answer. Of equal entries the first one counts.

    Args:
        completion: The completion.
        readings: The parsed votes or abstentions, in the order of the roles.
        numbered: Whether entries carry the roles' numbers.

    Returns:
        Confidences in (0, 1]; None without vote or confidence.
    """
    places = locate(completion.logprobs, completion.text) if completion.logprobs else None
    if places is None:
        return [None] * len(readings)
    tokens = Tokens(completion.logprobs, places)
    written: dict[tuple[str, str, str | None], tuple[Span, Span]] = {}
    for ballot in written_ballots(completion.text):
        written.setdefault((ballot.role, ballot.reason, read_vote(ballot.vote)), ballot.spans)
    return [
        tokens.confidence(written.get((str(number) if numbered else "", reading.reason, reading.choice), ()))
        if isinstance(reading, Vote)
        else None
        for number, reading in enumerate(readings, start=1)
    ]


class Tokens:
    """The tokens of an answer with their positions.

    Args:
        tokens: The tokens with their log-probabilities.
        places: The span of each token, from ``placement.locate``.
    """

    def __init__(self, tokens: Sequence[TokenLogprob], places: Sequence[Span]) -> None:
        self._logprobs = [token.logprob for token in tokens]
        self._starts = [place.start for place in places]
        self._ends = [place.end for place in places]

    def confidence(self, spans: Iterable[Span]) -> float | None:
        """Equation 3: the exponential of the mean log-probability of the tokens in ``spans``.

        A token counts once and as a whole if at least one of its characters is in a span, as its probability
        cannot be divided. The last token of a reason therefore counts even if it contains the closing
        quotation mark.

        Returns:
            A number in (0, 1], or None where there is no such token or one has no finite log-probability.
        """
        counted = {
            index
            for start, end in spans
            for index in range(bisect_right(self._ends, start), bisect_left(self._starts, end))
            if self._starts[index] < self._ends[index]
        }
        mean = math.fsum(self._logprobs[index] for index in counted) / max(1, len(counted))
        if not counted or not math.isfinite(mean):
            return None
        return math.exp(min(0.0, mean)) or None
