"""Files of weights for the members of a panel: one TOML table ``weights``.

[weights]
llm = 2.2
"theirs@gpt-4o" = 0.85
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class PanelWeightsError(ValueError):
    """A file has no weights. The message names the file and the problem."""


class _Weights(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    weights: dict[str, float] = Field(min_length=1)


def read_weights(file: Path) -> Mapping[str, float]:
    """The weights of a file, by the name of the judge, or NAME@MODEL.

    Raises:
        PanelWeightsError: The file cannot be read, or has no such table.
    """
    try:
        return _Weights.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).weights
    except OSError as error:
        raise PanelWeightsError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise PanelWeightsError(f"{file} has no table [weights] of numbers by judge") from error


def write_weights(file: Path, weights: Mapping[str, float], comment: str) -> None:
    """Writes weights by judge, below a comment of one line.

    Raises:
        OSError: The file cannot be written.
    """
    rows = [f"{json.dumps(name)} = {weight:.6g}" for name, weight in weights.items()]
    file.write_text("\n".join([f"# {' '.join(comment.split())}", "[weights]", *rows, ""]), encoding="utf-8")


def weight_of(weights: Mapping[str, float], judge: str, model: str) -> float | None:
    """The weight of a member: of NAME@MODEL, else of NAME. None: the file has none."""
    return weights.get(f"{judge}@{model}", weights.get(judge)) if model else weights.get(judge)
