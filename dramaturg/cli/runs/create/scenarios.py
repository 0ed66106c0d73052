"""``dramaturg runs create scenarios``."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.scenarios_pb2 import WriteScenariosRequest
from dramaturg.cli.runs.create.options import command_of
from dramaturg.cli.scenarios.write import Count, Demonstrations, Form, Near, overrides


@command_of("scenarios")
def scenarios(
    form: Form = None, count: Count = 0, near: Near = None, demonstrations: Demonstrations = None
) -> WriteScenariosRequest:
    """Creates a run that has models write scenarios for decisions, to be reviewed by people (Choice-75).

    "dramaturg scenarios sheet" writes the review sheet of its exported samples.

    For example:

        dramaturg runs create scenarios briefs.jsonl --form hard-verb-phrase --count 6 --model my-model

        dramaturg runs create scenarios briefs.jsonl --demonstrations demonstrations.jsonl --model my-model
    """
    return overrides(form, count, near, demonstrations)
