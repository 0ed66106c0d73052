"""Trainings that are killed with SIGKILL: needs sentence-transformers and torch."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from dramaturg_research.training.trainer import CHECKPOINT_FOLDER
from services.edges.card import read_card
from services.edges.plan import Reading
from tests.support import command_server
from tests.support.command_line import ROOT
from tests.support.edges import write_scripts, write_tiny_encoder

pytest.importorskip("torch", reason="needs the extra [embeddings]")
pytest.importorskip("sentence_transformers", reason="needs the extra [embeddings]")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


def start(material: Path, folder: Path, reading: Reading, members: int) -> subprocess.Popen[bytes]:
    arguments = [
        "research",
        "graphs",
        "train",
        str(material / "scripts.json"),
        "-o",
        str(folder),
        "--device",
        "cpu",
    ]
    arguments += ["--encoder", str(material / "encoder"), "--reading", reading.value, "--max-length", "64"]
    arguments += ["--epochs", "2", "--patience", "2", "--batch-size", "4", "--threads", "1"]
    arguments += ["--members", str(members)]
    # At every batch, so that some are killed while a checkpoint is written.
    arguments += ["--checkpoint-every", "1"]
    return subprocess.Popen(
        [*command_server.command("torch", "sentence_transformers"), *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_checkpoints(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Returns once so many new checkpoints were seen; fails where the process ends before."""
    seen = _states(folder)
    wanted = len(seen) + count
    while len(seen) < wanted:
        assert process.poll() is None, "ended before it could be killed"
        seen |= _states(folder)
        time.sleep(0.002)


def _states(folder: Path) -> set[int]:
    """When the states that are there were written: one at most, of the model or of a member."""
    times = set()
    state = f"{CHECKPOINT_FOLDER}/state.pt"
    # A recursive pattern would look into folders that the training deletes meanwhile.
    for path in (folder / state, *folder.glob(f"member-*/{state}")):
        with suppress(FileNotFoundError):
            times.add(path.stat().st_mtime_ns)
    return times


@pytest.mark.parametrize(
    ("reading", "members"), [(Reading.TOGETHER, 1), (Reading.PAIRS, 1), (Reading.TOGETHER, 2)]
)
def test_a_killed_training_ends_with_the_same_weights(tmp_path: Path, reading: Reading, members: int) -> None:
    write_scripts(tmp_path / "scripts.json", count=40)
    write_tiny_encoder(tmp_path / "encoder")
    assert start(tmp_path, tmp_path / "straight", reading, members).wait(300) == 0
    folder = tmp_path / "killed"
    rng = Random(7)
    for _ in range(2):
        process = start(tmp_path, folder, reading, members)
        try:
            # Of an ensemble the first member has twenty; the second kill is in the second.
            wait_for_checkpoints(folder, rng.randint(1, 5) + 10 * (members - 1), process)
        finally:
            process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    assert start(tmp_path, folder, reading, members).wait(300) == 0
    assert read_card(folder) == read_card(tmp_path / "straight")
    assert not list(folder.glob(f"**/{CHECKPOINT_FOLDER}"))
