"""What the parts of the run engine of one gateway share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dramaturg.service.threads import ThreadPool
from gateway.runs.engine.sample_evaluation import SampleEvaluator
from gateway.runs.engine.workflows import WorkflowClient
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.settings import RunsSettings
from gateway.runs.store import RunStore
from gateway.runs.store_calls import RetryingCaller

if TYPE_CHECKING:  # these modules import this one
    from gateway.runs.engine.executors import ClusterMembership
    from gateway.runs.engine.worker import SamplePacer


@dataclass(frozen=True)
class EngineParts:
    """What the parts of the run engine of one gateway share."""

    settings: RunsSettings
    store: RunStore
    threads: ThreadPool
    """Runs store calls."""
    call: RetryingCaller
    """Runs store calls until they succeed."""
    workflows: WorkflowClient
    """The workflows of all gateways."""
    membership: ClusterMembership
    """The gateways that execute runs."""
    notifier: ChangeNotifier
    """Notifies on changes of runs."""
    evaluator: SampleEvaluator
    """Evaluates one sample."""
    pacer: SamplePacer
    """Paces the samples."""
