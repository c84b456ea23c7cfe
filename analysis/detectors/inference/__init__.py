"""Verdicts on inference: who asks, from where, how much."""
