"""Verdicts on training jobs: nodes and cohorts that are slow or stop, steps, collectives."""
