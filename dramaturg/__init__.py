"""Evaluation of what language models write, as swappable gRPC services."""

import os

# Must be set before gRPC is first imported. Nothing here forks after gRPC has started - worker processes are
# spawned - and gRPC's fork handlers would only print warnings about the fork that spawning begins with.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
