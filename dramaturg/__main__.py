"""The console script. The command line is the extra ``cli``; without it a message says so."""

from __future__ import annotations

import gc
import io
import sys


def main() -> None:
    """Runs the command line; where it is not installed, exits with code 2."""
    try:
        import rich
        import typer
    except ModuleNotFoundError:
        sys.stderr.write("The command line is not installed: pip install 'dramaturg[cli]'\n")
        sys.exit(2)
    del rich, typer
    # Imports make objects that stay: searches for garbage among them take a tenth of the start of a command.
    gc.set_threshold(20_000, 20, 20)
    _write_whole_output()
    from dramaturg.cli.main import main as run

    run()


def _write_whole_output() -> None:
    """Buffers standard output where PYTHONUNBUFFERED is set.

    A signal cuts a write without a buffer to a full pipe, and the rest is lost without an error.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        # The stream before stays open in sys.__stdout__.
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=True,
        )


if __name__ == "__main__":
    main()
