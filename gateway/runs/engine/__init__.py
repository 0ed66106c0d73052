"""Carries runs out: durable workflows around the evaluations that EvaluationService does too."""
