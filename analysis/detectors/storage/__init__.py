"""Verdicts on storage: checkpoints, loading of data sets, incast."""
