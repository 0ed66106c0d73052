"""Asks a model whether one event comes before another."""

from __future__ import annotations

from dataclasses import dataclass

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.judge import abstentions
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.fence import fence
from dramaturg.judge.prompts import Prompt
from dramaturg.service.errors import ServiceError
from services.generation.author import SHORT_ANSWER_TOKENS, Author, Written, with_defaults
from services.generation.edges.numbering import scenario_excerpt
from services.generation.edges.yes_no import probability_of_yes, read_yes_no

TOP_LOGPROBS = 5
"""How many alternatives are asked for: enough to spell two words, and what most providers allow."""

_LONGEST_EVENT = 20_000
_UNCLEAR = Abstention(verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "The answer is not clearly yes or no.")


@dataclass(frozen=True)
class Ballot:
    """One answer about one pair."""

    yes: bool | None
    """What was answered. None: nothing clear."""
    probability: float | None
    """How likely yes was, where the answer's tokens show it."""
    has_tokens: bool
    """Whether the provider gave log-probabilities."""
    abstention: Abstention | None
    """Why nothing clear was answered."""
    provenance: Provenance
    """How it was made."""

    @property
    def reason(self) -> AbstainReason.ValueType:
        """Why it is of no use."""
        return (self.abstention or _UNCLEAR).reason

    @property
    def why_nothing(self) -> str:
        """The same in words."""
        if self.abstention is not None:
            return self.abstention.explanation
        return "No log-probability of the answer was given."


class PairAsker:
    """Asks about the pairs of one request.

    Args:
        author: Asks the model.
        prompt: The question.
        scenario: What the script is for.
        options: The model and the sampling.
    """

    def __init__(self, author: Author, prompt: Prompt, scenario: str, options: JudgeOptions) -> None:
        self._author = author
        self._prompt = prompt
        self._scenario = scenario_excerpt(scenario).text
        self._options = with_defaults(options, max_output_tokens=SHORT_ANSWER_TOKENS)
        self._top_logprobs = TOP_LOGPROBS

    async def ask(self, first: str, second: str, repeat_index: int) -> Ballot:
        """Asks whether the first event comes before the second.

        Raises:
            ServiceError: The model's configuration keeps it from ever answering.
        """
        try:
            written = await self._write(first, second, repeat_index)
        except ServiceError as error:
            failure = abstentions.of_failure(error)
            if failure is None:
                raise
            return Ballot(None, None, False, failure, Provenance(prompts=[self._prompt.reference]))
        tokens = written.completion.logprobs
        if written.abstention is not None:
            return Ballot(None, None, bool(tokens), written.abstention, written.provenance)
        yes = read_yes_no(written.text)
        if yes is None:
            return Ballot(None, None, bool(tokens), _UNCLEAR, written.provenance)
        return Ballot(yes, probability_of_yes(tokens, yes), bool(tokens), None, written.provenance)

    async def _write(self, first: str, second: str, repeat_index: int) -> Written:
        options = JudgeOptions()
        options.CopyFrom(self._options)
        options.repeat_index = repeat_index
        messages = self._prompt.render(
            {
                "scenario": self._scenario,
                "first": fence("event A", first, limit=_LONGEST_EVENT).text,
                "second": fence("event B", second, limit=_LONGEST_EVENT).text,
            }
        )
        prompts = [self._prompt.reference]
        if self._top_logprobs:
            try:
                return await self._author.write(
                    messages, options, prompts=prompts, top_logprobs=self._top_logprobs
                )
            except ServiceError as error:
                # Some endpoints refuse requests that ask for log-probabilities.
                if error.reason != error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED:
                    raise
        written = await self._author.write(messages, options, prompts=prompts)
        self._top_logprobs = 0
        return written
