"""Uses the bare wheel as another team does: stubs, client, a judge that is served and called, fakes."""

from __future__ import annotations

import importlib.util

import dramaturg
from dramaturg.judge.steps import split_steps

ABSENT = ("services", "gateway", "jinja2", "numpy", "openai", "rich", "torch", "typer")

for package in ABSENT:
    assert importlib.util.find_spec(package) is None, f"{package} came with the wheel"
for name in dramaturg.__all__:
    getattr(dramaturg, name)
assert split_steps("1. Boil water. 2. Add tea.") == ("Boil water.", "Add tea.")
