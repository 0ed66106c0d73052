"""The judge SDK: candidates, fences, prompts, answer forms, verdicts, contracts."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("dramaturg")
"""The version of this package and of the judges that it contains."""
