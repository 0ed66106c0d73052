"""The variants of an ablation (ABSEval, Tables 2 and 3, Figures 4 and 7), and the tags of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dramaturg.api.evaluation.v1 import scripts_pb2

BASE = "base"
"""The variant that the others are compared with."""
VARIANTS: Mapping[str, tuple[scripts_pb2.Mechanism.ValueType, scripts_pb2.GoldAnswerSource.ValueType]] = (
    MappingProxyType(
        {
            BASE: (scripts_pb2.MECHANISM_UNSPECIFIED, scripts_pb2.GOLD_ANSWER_SOURCE_UNSPECIFIED),
            "no-gold-answer": (scripts_pb2.MECHANISM_UNSPECIFIED, scripts_pb2.GOLD_ANSWER_SOURCE_NONE),
            "direct-gold-answer": (scripts_pb2.MECHANISM_UNSPECIFIED, scripts_pb2.GOLD_ANSWER_SOURCE_DIRECT),
            "single-judge": (scripts_pb2.MECHANISM_SINGLE_JUDGE, scripts_pb2.GOLD_ANSWER_SOURCE_NONE),
            "single-judge-with-gold-answer": (
                scripts_pb2.MECHANISM_SINGLE_JUDGE,
                scripts_pb2.GOLD_ANSWER_SOURCE_POOLED,
            ),
        }
    )
)
"""The mechanism and the source of the gold answer of each variant of the paper (ABSEval, Tables 2 and 3).
Unspecified ones are those of the row.
"""
LINE_TAG = "line"
"""The tag that records the number of a row's line, by which the results of variants are matched."""
VARIANT_TAG = "variant"
"""The tag that records the variant of a row of a run."""
