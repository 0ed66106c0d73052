"""What a model was trained with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def training_versions() -> dict[str, str]:
    """The versions of Python and of the packages that decide a training, by name."""
    versions = {"python": platform.python_version()}
    for name in ("dramaturg", "sentence-transformers", "transformers", "torch"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            # Such as dramaturg itself, run from a clone that is not installed.
            continue
    return versions
