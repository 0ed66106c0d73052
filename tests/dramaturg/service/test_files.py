from __future__ import annotations

import os
from pathlib import Path

import pytest

from dramaturg.service.files import ReloadingFile, read
from dramaturg.service.settings import SettingsError


def change(file: Path, text: str, version: int) -> None:
    file.write_text(text)
    os.utime(file, ns=(version, version))


def test_a_file_is_read_again_when_it_changes_and_not_before(tmp_path: Path) -> None:
    file, times = tmp_path / "file", 0
    change(file, "old", 1)

    def load() -> str:
        nonlocal times
        times += 1
        return read(file).decode()

    reread = ReloadingFile([file], load)
    assert [reread.current() for _ in range(3)] == ["old"] * 3
    assert reread.changed() is None
    assert times == 1
    change(file, "new", 2)
    assert reread.changed() == "new"
    assert reread.changed() is None
    assert reread.current() == "new"
    assert times == 2


def test_a_mounted_secret_changes_by_its_link(tmp_path: Path) -> None:
    for version, name in enumerate(("first", "second"), start=1):
        change(tmp_path / name, name, version)
    link = tmp_path / "secret"
    link.symlink_to(tmp_path / "first")
    reread = ReloadingFile([link], lambda: read(link).decode())
    turned = tmp_path / "turned"
    turned.symlink_to(tmp_path / "second")
    turned.replace(link)
    assert reread.current() == "second"


def test_what_cannot_be_read_any_more_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    change(file, "old", 1)
    reread = ReloadingFile([file], lambda: read(file).decode())
    file.unlink()
    assert reread.current() == "old"
    assert "could not be read again" in caplog.text
    change(file, "new", 2)
    assert reread.current() == "new"


def test_what_cannot_be_read_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="absent cannot be read"):
        ReloadingFile([tmp_path / "absent"], lambda: None)
