"""Executes runs: durable workflows around the evaluations that EvaluationService serves too."""
