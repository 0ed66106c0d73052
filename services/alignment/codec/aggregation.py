"""Messages of AggregateLabels."""

from __future__ import annotations

import numpy as np

from dramaturg.api.alignment.v1 import aggregation_pb2 as pb
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.aggregation import Aggregation, Votes
from services.alignment.errors import too_large
from services.alignment.workers import Checkpoint

DEFAULT_ITERATIONS = 200
"""The largest number of iterations of a request that names none."""
MAX_AGGREGATED_CELLS = 20_000_000
"""The most probabilities of one computation: items x labels, votes x labels, annotators x labels x labels."""
_CHUNK = 10_000


def decode_votes(request: pb.AggregateLabelsRequest, checkpoint: Checkpoint) -> Votes:
    """Reads the votes.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation: an annotation without exactly one label, or an
            annotator who labels an item twice. RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many cells.
    """
    annotators = sorted({one.annotator for item in request.items for one in item.annotations})
    labels = sorted({label for item in request.items for one in item.annotations for label in one.labels})
    places = {name: place for place, name in enumerate(annotators)}
    codes = {name: code for code, name in enumerate(labels)}
    rows: list[tuple[int, int, int]] = []
    violations: list[Violation] = []
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        seen: set[str] = set()
        for place, one in enumerate(item.annotations):
            path = f"items[{index}].annotations[{place}]"
            if len(one.labels) != 1:
                violations.append(Violation(f"{path}.labels", f"has {len(one.labels)} labels; 1 is needed"))
            elif one.annotator in seen:
                violations.append(Violation(f"{path}.annotator", "has labelled the item already"))
            else:
                seen.add(one.annotator)
                rows.append((index, places[one.annotator], codes[one.labels[0]]))
        if len(violations) >= MAX_VIOLATIONS:
            break
    if not rows and not violations:
        violations.append(Violation("items", "have no annotations"))
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    count = len(labels)
    cells = max(len(request.items) * count, len(annotators) * count**2, len(rows) * count)
    if cells > MAX_AGGREGATED_CELLS:
        raise too_large("probabilities", limit=MAX_AGGREGATED_CELLS, actual=cells)
    table = np.array(rows, np.intp).T
    return Votes(table[0], table[1], table[2], len(request.items), annotators, labels)


def encode_aggregation(
    request: pb.AggregateLabelsRequest, votes: Votes, found: Aggregation
) -> pb.AggregateLabelsResponse:
    best = np.where(np.isnan(found.probabilities), -1.0, found.probabilities).argmax(axis=1)
    consensus = np.bincount(votes.annotator, votes.label == best[votes.item], len(votes.annotators))
    labelled = np.bincount(votes.annotator, minlength=len(votes.annotators))
    response = pb.AggregateLabelsResponse(
        prior={label: float(found.prior[code]) for code, label in enumerate(votes.labels)},
        iteration_count=found.iterations,
        converged=found.converged,
    )
    for index, item in enumerate(request.items):
        counts = found.votes[index]
        if not counts.any():
            response.items.add(id=item.id)
            continue
        response.items.add(
            id=item.id,
            label=votes.labels[int(best[index])],
            probabilities={
                label: float(found.probabilities[index, code]) for code, label in enumerate(votes.labels)
            },
            majority=[votes.labels[code] for code in np.flatnonzero(counts == counts.max()).tolist()],
        )
    for place, name in enumerate(votes.annotators):
        quality = response.annotators.add(
            annotator=name,
            item_count=int(labelled[place]),
            accuracy=float(found.accuracies()[place]),
            consensus_share=float(consensus[place] / labelled[place]),
        )
        for right, label in enumerate(votes.labels):
            for given, other in enumerate(votes.labels):
                probability = float(found.confusion[place, right, given])
                quality.confusion.add(right=label, given=other, probability=probability)
    return response
