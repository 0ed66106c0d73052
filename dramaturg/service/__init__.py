"""The runtime that every service shares: one way to start a server, one way to open a channel."""

import os

# gRPC writes a line to standard error for each connection without TLS to a server with it, beside the log and
# without a limit. It reads the variable when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
