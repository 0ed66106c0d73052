"""Solvers in processes of their own, so that they can be stopped: HiGHS does not listen while it works."""
