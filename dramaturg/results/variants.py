"""The tags of rows that are evaluated in several variants."""

BASE = "base"
"""The variant that the others are compared with."""
LINE_TAG = "line"
"""The tag that records the number of a row's line, by which the results of variants are matched."""
VARIANT_TAG = "variant"
"""The tag that records the variant of a row of a run."""
