"""Serves a model file over chat completions: ``python -m services.generation.model_server``.

The process writes one line with its address when the model is loaded, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> None:
    """Loads the model and serves it.

    Raises:
        Exception: llama.cpp cannot load it.
    """
    # Ctrl-C on a terminal is for the service, which ends this process after its drain.
    os.setpgrp()
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    options = parser.parse_args()
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = options.path
    settings.n_ctx = options.context * options.slots
    settings.n_parallel = options.slots
    # A free port, of this machine alone.
    settings.port = 0
    server = xllamacpp.Server(settings)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    # The other end closes with the process that started this one, however it ends.
    sys.stdin.read()


if __name__ == "__main__":
    main()
