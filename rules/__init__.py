"""Alert rules as data: their encoding for Grafana, and an evaluator of our own."""

from rules.encode import artefacts

__all__ = ["artefacts"]
