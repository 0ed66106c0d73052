"""Paired comparison of systems on the same items: tests, effect sizes, a release gate."""
