"""The scripts that faults are put into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import Row
from dramaturg.judge.steps import is_blank, parse_candidate
from dramaturg.meta_evaluation.vocabulary import Vocabulary, is_title
from dramaturg.summaries.labels import HumanLabels, LabelJoin


@dataclass(frozen=True, eq=False)
class Original:
    """One candidate of a row."""

    line: int
    """The number of the row's line, from 1."""
    request: EvaluateScriptsRequest
    """The row."""
    candidate_id: str
    """The candidate's id."""
    steps: Sequence[str]
    """Its steps, as judges read them; none is blank."""

    @property
    def goal(self) -> str:
        """What scripts are written for the same end by: the abstract goal where there is one."""
        task = self.request.task
        return " ".join((task.abstract_goal or task.goal).casefold().split())

    def constraints(self, vocabulary: Vocabulary) -> Sequence[str]:
        """The task's constraints. Those of a goal that is written as a title are in sentence case.

        Args:
            vocabulary: The words of the scripts of the file.
        """
        task = self.request.task
        if not is_title(task.goal) or " " not in task.goal.strip():
            return task.constraints
        return [vocabulary.in_sentence_case(constraint) for constraint in task.constraints]

    def with_steps(self, steps: Sequence[str], *, keep_others: bool) -> EvaluateScriptsRequest:
        """The row with these steps in the place of the candidate's.

        Args:
            steps: The steps.
            keep_others: Whether the row's other candidates stay. They are judged too, and a gold answer is
                learned from them.
        """
        made = EvaluateScriptsRequest()
        made.CopyFrom(self.request)
        for candidate in made.candidates:
            if candidate.id == self.candidate_id:
                candidate.script.CopyFrom(Script(steps=[Step(text=step) for step in steps]))
        if not keep_others:
            mine = [candidate for candidate in made.candidates if candidate.id == self.candidate_id]
            del made.candidates[:]
            made.candidates.extend(mine)
        return made


class ScriptsOfOtherGoals(Sequence[Sequence[str]]):
    """The scripts of all goals but one, without a list for each.

    Args:
        originals: All scripts, sorted by goal.
        first: The index of the first one of the goal that is left out.
        count: How many scripts that goal has.
    """

    def __init__(self, originals: Sequence[Original], first: int, count: int) -> None:
        self._originals = originals
        self._first = first
        self._count = count

    def __len__(self) -> int:
        return len(self._originals) - self._count

    @overload
    def __getitem__(self, index: int) -> Sequence[str]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[str]]: ...
    def __getitem__(self, index: int | slice) -> Sequence[str] | Sequence[Sequence[str]]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._originals[index if index < self._first else index + self._count].steps


@dataclass(frozen=True)
class Originals:
    """The scripts of a file."""

    scripts: Sequence[Original]
    """The scripts, in the order of the file."""
    left_out: Counter[str]
    """Candidates that no fault can be put into, by why."""

    @classmethod
    def read(
        cls,
        rows: Iterable[Row[EvaluateScriptsRequest]],
        people: HumanLabels | None = None,
    ) -> Originals:
        """Reads the candidates of every row.

        Args:
            rows: The rows.
            people: What people say; only scripts are taken that they found right in everything. None: all.

        Raises:
            AmbiguousLabelsError: A label is of several scripts.
        """
        scripts: list[Original] = []
        left_out: Counter[str] = Counter()
        join = None if people is None else LabelJoin(people)
        criteria = {criterion for _, criterion in people.labels} if people else ()
        for line, request in rows:
            for candidate in request.candidates:
                steps = [step for step in parse_candidate(candidate).steps if not is_blank(step)]
                labels = [
                    join.of(str(line), request.task.id, candidate.id, criterion)
                    for criterion in criteria
                    if join is not None
                ]
                if join is not None and not (True in labels and False not in labels):
                    left_out["people did not find it right in everything"] += 1
                elif not steps:
                    left_out["no steps can be found in it"] += 1
                elif candidate.script.edges:
                    left_out["its order is partial: it has edges"] += 1
                else:
                    scripts.append(Original(line, request, candidate.id, steps))
        if join is not None:
            join.check()
        return cls(scripts, left_out)

    def vocabulary(self) -> Vocabulary:
        """The words of all scripts."""
        return Vocabulary.of(step for one in self.scripts for step in one.steps)

    def of_other_goals(self) -> dict[str, ScriptsOfOtherGoals]:
        """For each goal the scripts of all others."""
        by_goal = sorted(self.scripts, key=lambda one: one.goal)
        counts = Counter(one.goal for one in by_goal)
        found: dict[str, ScriptsOfOtherGoals] = {}
        first = 0
        for goal in sorted(counts):
            found[goal] = ScriptsOfOtherGoals(by_goal, first, counts[goal])
            first += counts[goal]
        return found
