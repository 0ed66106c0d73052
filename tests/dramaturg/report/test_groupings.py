from __future__ import annotations

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.groupings import MAX_VALUES, find_groupings
from tests.dramaturg.report.samples import sample


def tagged(**tags: str) -> RunSample:
    return RunSample(tags=tags)


def test_tags_with_a_few_repeated_values_make_groups() -> None:
    samples = [
        tagged(level=str(place % 2), line=str(place), source="all", many=str(place // 2))
        for place in range(2 * MAX_VALUES + 2)
    ]
    finder = find_groupings(samples)
    assert finder.groupings() == ["level"]


def test_scripts_are_grouped_by_topic_and_number_of_steps() -> None:
    samples = [sample("scripts", place) for place in range(4)]
    for place, one in enumerate(samples):
        one.scripts.task.topic = "Food" if place % 2 else "Travel"
        if place % 2:
            one.scripts.candidates[0].script.steps.add(text="serve")
    options = find_groupings(samples).options()
    assert [list(one.tags) for one in options.groupings] == [["steps"], ["topic"]]
    assert options.models_compared
