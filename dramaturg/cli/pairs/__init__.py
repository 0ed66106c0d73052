"""Pairs of texts (DRPE): rows of the released human study, comparisons, and how they go with people."""
