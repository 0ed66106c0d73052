"""The start of the service."""

from __future__ import annotations

import subprocess
import sys


def test_the_service_starts_without_the_libraries_of_single_methods() -> None:
    """They take longer to import than all else, and most commands ask for means alone."""
    code = "import sys, services.alignment.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {*done.stdout.split()}
    assert "services.alignment.app" in imported
    assert not {"nltk", "numpy", "rouge_score", "sacrebleu", "scipy"} & imported
