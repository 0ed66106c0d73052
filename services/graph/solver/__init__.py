"""Solvers in separate processes, because HiGHS cannot be interrupted."""
