"""Calibration of confidences, and confidence thresholds for abstaining."""
