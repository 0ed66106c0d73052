"""The options of sampling, the same for every command whose models are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from google.protobuf.message import Message

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling

Temperature = Annotated[
    float | None, typer.Option(min=0, max=2, help="The sampling temperature. Default: as the row says.")
]
TopP = Annotated[
    float | None, typer.Option(min=0, max=1, help="The share of nucleus sampling. Default: as the row says.")
]
MaxOutputTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1_000_000,
        help="The most tokens of an answer, reasoning included.",
    ),
]
ReasoningEffort = Annotated[
    str,
    typer.Option(metavar="EFFORT", help="How much a reasoning model reasons: minimal, low, medium, high."),
]
SamplingSeed = Annotated[
    int | None, typer.Option("--sampling-seed", help="The seed for providers that sample by one.")
]

Repeats = Annotated[
    int,
    typer.Option(
        min=0,
        max=15,
        help="Ask each judge of verdicts, ratings or pairs as often, independently; the majority or the mean "
        "counts. 0: as the row says, else once.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How models sample. What is not set is not sent; what a model refuses is left out and reported."""

    temperature: Temperature = None
    """The temperature."""
    top_p: TopP = None
    """The share of nucleus sampling."""
    max_output_tokens: MaxOutputTokens = None
    """The most tokens of an answer."""
    reasoning_effort: ReasoningEffort = ""
    """How much a reasoning model reasons."""
    sampling_seed: SamplingSeed = None
    """The seed."""
    repeats: Repeats = 0
    """How often each judge is asked."""

    def sampling(self) -> Sampling:
        """What is set, as a message."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_output_tokens=self.max_output_tokens,
            reasoning_effort=self.reasoning_effort,
            seed=self.sampling_seed,
        )

    def apply(self, request: Message) -> None:
        """Copies the given values into the options of a request, if it has options."""
        if "options" not in request.DESCRIPTOR.fields_by_name:
            return
        options: JudgeOptions = request.options  # type: ignore[attr-defined]
        sampling = self.sampling()
        if sampling.ByteSize():
            options.sampling.MergeFrom(sampling)
        if self.repeats:
            options.repeats = self.repeats
