"""Messages of AggregateLabels."""

from __future__ import annotations

import numpy as np

from dramaturg.api.alignment.v1 import aggregation_pb2 as pb
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.aggregation import Aggregation, Votes
from services.alignment.dependence import Dependence
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
    request: pb.AggregateLabelsRequest, votes: Votes, dependence: Dependence, found: Aggregation | None
) -> pb.AggregateLabelsResponse:
    """Encodes the labels; those of the most votes alone where ``found`` is ``None``."""
    response = pb.AggregateLabelsResponse(
        unidentified=dependence.unidentified, effective_annotator_count=dependence.effective
    )
    for pair in dependence.pairs:
        response.dependent_pairs.add(
            first=votes.annotators[pair.first],
            second=votes.annotators[pair.second],
            item_count=pair.items,
            error_correlation=pair.correlation,
        )
    counts = np.zeros((votes.items, len(votes.labels)))
    np.add.at(counts, (votes.item, votes.label), 1.0)
    for index, item in enumerate(request.items):
        most = np.flatnonzero(counts[index] == counts[index].max()).tolist() if counts[index].any() else []
        response.items.add(id=item.id, majority=[votes.labels[code] for code in most])
    if found is not None:
        _add_estimates(response, votes, dependence, found)
    return response


def _add_estimates(
    response: pb.AggregateLabelsResponse, votes: Votes, dependence: Dependence, found: Aggregation
) -> None:
    best = np.where(np.isnan(found.probabilities), -1.0, found.probabilities).argmax(axis=1)
    consensus = np.bincount(votes.annotator, votes.label == best[votes.item], len(votes.annotators))
    labelled = np.bincount(votes.annotator, minlength=len(votes.annotators))
    response.prior.update({label: float(found.shares[code]) for code, label in enumerate(votes.labels)})
    response.iteration_count, response.converged = found.iterations, found.converged
    for index, item in enumerate(response.items):
        if not item.majority:
            continue
        item.label = votes.labels[int(best[index])]
        item.probabilities.update(
            {label: float(found.probabilities[index, code]) for code, label in enumerate(votes.labels)}
        )
    accuracies = found.accuracies()
    for place, name in enumerate(votes.annotators):
        quality = response.annotators.add(
            annotator=name,
            item_count=int(labelled[place]),
            accuracy=float(accuracies[place]),
            consensus_share=float(consensus[place] / labelled[place]),
            vote_weight=float(dependence.weights[place]),
        )
        for right, label in enumerate(votes.labels):
            for given, other in enumerate(votes.labels):
                probability = float(found.confusion[place, right, given])
                quality.confusion.add(right=label, given=other, probability=probability)
