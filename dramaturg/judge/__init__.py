"""The judge SDK: candidates, fences, prompts, answer forms, verdicts, contracts."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("dramaturg")
"""The version of this package, which the judges that come with it give as theirs."""
