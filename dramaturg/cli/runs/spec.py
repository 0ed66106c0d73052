"""Makes the parts of a run's spec from what the command line says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.dataset_service_pb2 import DATASET_STATE_READY, UploadedDataset
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunBudget, RunLimits, RunPolicy, RunSpec
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo
from dramaturg.client import DramaturgClient
from dramaturg.datasets import Format, format_of, local_path
from dramaturg.datasets.source import STANDARD_INPUT

RunConcurrency = Annotated[
    int | None,
    typer.Option("--concurrency", min=0, max=1024, help="Samples evaluated at once, by all gateways. 0: 16."),
]
PANEL = "Runs"
"""The panel of a command's help with the options of its run."""
Name = Annotated[
    str | None,
    typer.Option(help="Display name of the run. Default: the name of FILE.", rich_help_panel=PANEL),
]
RunLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="KEY=VALUE", help="A label of the run; repeatable.", rich_help_panel=PANEL
    ),
]
Priority = Annotated[
    int | None,
    typer.Option(
        min=-100,
        max=100,
        help="Runs of a tenant with a higher priority are served first.",
        rich_help_panel=PANEL,
    ),
]
Attempts = Annotated[
    int,
    typer.Option(
        min=0,
        max=20,
        help="Attempts of a sample that fails with a transient error. 0: 3.",
        rich_help_panel=PANEL,
    ),
]
MaxFailed = Annotated[
    int | None,
    typer.Option(min=0, help="Number of failed samples above which the run fails.", rich_help_panel=PANEL),
]
MaxFailedFraction = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Share of failed samples above which the run fails.", rich_help_panel=PANEL
    ),
]
MaxAbstainedFraction = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Share of abstentions above which the run fails.", rich_help_panel=PANEL),
]
MinCoverage = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Share of judgements under which the run is partial. Default: 0.9.",
        rich_help_panel=PANEL,
    ),
]
FailFast = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=1_000_000,
        help="First samples that pause the run if one permanent reason fails all. 0: never. Default: 3.",
        rich_help_panel=PANEL,
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(min=0, help="Budget in US dollars, at which no further sample starts. 0: none."),
]
MaxTokens = Annotated[
    int | None, typer.Option(min=0, help="Budget in tokens, at which no further sample starts. 0: none.")
]
EstimateUsage = Annotated[
    bool,
    typer.Option(
        "--estimate-usage",
        help="Count answers without token counts with estimates, which are upper bounds. Default: a budget "
        "of tokens or cost is refused for models that state none.",
    ),
]

SHOWN_ERRORS = 10
"""The most rows that are no valid requests that are told one by one."""
INLINE_BYTES = 15 << 20
"""The largest file that is sent with the request, in bytes; a larger one is uploaded before."""

_FORMATS = {
    Format.JSONL: run_pb2.DATASET_FORMAT_JSONL,
    Format.CSV: run_pb2.DATASET_FORMAT_CSV,
    Format.PARQUET: run_pb2.DATASET_FORMAT_PARQUET,
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of the run of a command. What is not set is as the gateway has it."""

    name: Name = None
    """The display name. None: the name of the file."""
    label: RunLabels = None
    """Labels, as KEY=VALUE."""
    priority: Priority = None
    """The priority among the runs of a tenant."""
    attempts: Attempts = 0
    """The attempts of a sample."""
    max_failed: MaxFailed = None
    """The number of failed samples above which the run fails."""
    max_failed_fraction: MaxFailedFraction = None
    """The share of failed samples above which the run fails."""
    max_abstained_fraction: MaxAbstainedFraction = None
    """The share of abstentions above which the run fails."""
    min_coverage: MinCoverage = None
    """The share of judgements under which the run is partial."""
    fail_fast: FailFast = None
    """The number of first samples that pause the run if one permanent reason fails all."""

    def policy(self, sample_timeout: float | None, **limits: float | None) -> RunPolicy:
        """The failure policy with these options. The arguments are those of ``make_policy``."""
        return make_policy(
            self.attempts,
            sample_timeout,
            max_failed_count=self.max_failed,
            max_failed_fraction=self.max_failed_fraction,
            max_abstained_fraction=self.max_abstained_fraction,
            min_coverage=self.min_coverage,
            fail_fast_sample_count=self.fail_fast,
            **limits,
        )


def make_dataset(file: str, form: Format | None, *, limit: int | None) -> Dataset:
    """The dataset of a path or an address that the gateway reads itself.

    Raises:
        typer.Exit: 2 with a message where it is standard input.
    """
    if file == STANDARD_INPUT:
        fail("--by-reference: standard input has no address that a gateway could read")
    path = local_path(file)
    dataset = Dataset(uri=file if path is None else str(path.absolute()), row_limit=limit or 0)
    if (form := form or format_of(file)) is not None:
        dataset.format = _FORMATS[form]
    return dataset


async def upload_rows(client: DramaturgClient, spec: RunSpec, path: Path | None) -> None:
    """Uploads the rows of a spec whose dataset has no source: they are too large for a request."""
    if spec.dataset.WhichOneof("source") is None:
        assert path is not None
        dataset = await client.datasets.upload(path, form=spec.dataset.format, on_progress=show_upload)
        spec.dataset.dataset_id = dataset.id


def show_upload(dataset: UploadedDataset) -> None:
    """Says on standard error how much of a dataset is uploaded."""
    done = dataset.state == DATASET_STATE_READY
    echo(f"upload: {upload_size(dataset)} bytes{', complete' if done else ''}", err=True)


def upload_size(dataset: UploadedDataset) -> str:
    """The bytes of a dataset; of an incomplete one also those that are received."""
    if dataset.state == DATASET_STATE_READY:
        return f"{dataset.byte_count:,}"
    return f"{dataset.received_byte_count:,} of {dataset.byte_count:,}"


def make_policy(attempts: int, sample_timeout: float | None, **limits: float | None) -> RunPolicy:
    """The failure policy of a run.

    Args:
        attempts: The attempts of a sample. 0: as the gateway has it.
        sample_timeout: The timeout of one attempt, in seconds. None: as the gateway has it.
        limits: Optional fields of the policy, by name. None: as the gateway has it.
    """
    policy = RunPolicy(sample_attempt_count=attempts, **limits)  # type: ignore[arg-type]  # by name
    if sample_timeout is not None:
        policy.sample_timeout.FromNanoseconds(round(sample_timeout * 1e9))
    return policy


def make_budget(
    max_cost_usd: float | None, max_tokens: int | None, *, estimate_usage: bool = False
) -> RunBudget | None:
    """What a run may cost. None: nothing is said of it."""
    if max_cost_usd is None and max_tokens is None:
        return None
    return RunBudget(
        max_cost_usd=max_cost_usd,
        max_token_count=max_tokens or 0,
        estimate_unreported_usage=estimate_usage,
    )


def make_limits(concurrency: int | None, priority: int | None) -> RunLimits | None:
    """How fast a run goes. None: nothing is said of it."""
    if concurrency is None and priority is None:
        return None
    return RunLimits(max_concurrent_samples=concurrency or 0, priority=priority or 0)


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Reads KEY=VALUE.

    Raises:
        typer.Exit: 2 with a message where one is malformed.
    """
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            fail(f"--label {text!r} is not of the form KEY=VALUE")
        labels[key] = value
    return labels
