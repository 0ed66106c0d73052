"""NOTICE and docs/operate/security.md name the licences and weights that images carry."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from services.embedding.weights import DEFAULT_WEIGHTS_SHA256

ROOT = Path(__file__).resolve().parents[2]
NOTICE = (ROOT / "NOTICE").read_text(encoding="utf-8")
PERMISSIVE = re.compile(
    r"Apache|BSD|MIT|ISC|PSF|Python Software Foundation|Zlib|CC0|0BSD|The Unlicense|HPND", re.IGNORECASE
)
RESTRICTIVE = re.compile(r"GPL|MPL|Mozilla|CNRI|EPL|CDDL|NVIDIA|Proprietary", re.IGNORECASE)


def locked() -> list[str]:
    files = ("platform", "embeddings")
    text = "\n".join((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8") for name in files)
    return sorted(set(re.findall(r"^([A-Za-z0-9_.-]+)==", text, re.MULTILINE)))


def licence_of(package: str) -> str | None:
    """The licence in the metadata of an installed package."""
    try:
        found: Any = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        return None
    classifiers = [c for c in found.get_all("Classifier") or [] if c.startswith("License ::")]
    return str(found.get("License-Expression") or "; ".join(classifiers) or found.get("License"))


def test_licences_that_are_not_permissive_are_named() -> None:
    found = {package: licence_of(package) for package in locked()}
    installed = {package: licence for package, licence in found.items() if licence is not None}
    assert installed
    unnamed = {
        package: licence
        for package, licence in installed.items()
        if RESTRICTIVE.search(licence) or not PERMISSIVE.search(licence)
        if not re.search(rf"\b{re.escape(package)}\b", NOTICE)
    }
    assert not unnamed


def test_the_weights_are_documented_with_their_hashes() -> None:
    text = (ROOT / "docs" / "operate" / "security.md").read_text(encoding="utf-8")
    requirement = (ROOT / "requirements" / "embedding-model.txt").read_text(encoding="utf-8")
    assert DEFAULT_WEIGHTS_SHA256 in text
    for name in re.findall(r"sha256:([0-9a-f]{64})", requirement):
        assert name in text
