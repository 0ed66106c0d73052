"""Carries many unary calls over one stream (``tunnel/v1``).

A call of its own costs gRPC for Python, both sides together, more than most of what is asked for: a stream,
headers and half a dozen events, each of which wakes a process. Calls that share a stream share these
(docs/operations.md, "Calls that share a stream").
"""
