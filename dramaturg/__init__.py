"""Evaluation of what language models write, as swappable gRPC services."""
