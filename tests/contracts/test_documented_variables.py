"""The variables of services that the documents name."""

from __future__ import annotations

import re

from dramaturg.service.installed import find_app, service_names, settings_type
from tests.support.command_line import ROOT

_SERVICES = {name.upper().replace("-", "_"): name for name in service_names()}
_VARIABLE = re.compile(rf"\bDRAMATURG_({'|'.join(sorted(_SERVICES, reverse=True))})_([A-Z0-9_]+)")


def test_every_variable_of_a_service_that_is_named_exists() -> None:
    named = {
        (file.name, *found)
        for file in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
        for found in _VARIABLE.findall(file.read_text(encoding="utf-8"))
    }
    assert ("texts.md", "RUBRIC_JUDGE", "TAKES_IMAGES") in named
    wrong = [
        one
        for one in sorted(named)
        if one[2].partition("__")[0].lower() not in settings_type(find_app(_SERVICES[one[1]])).model_fields
    ]
    assert not wrong
