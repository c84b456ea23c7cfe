"""Thefts by whoever read the documentation, and days that only look like one, judged by the real detectors."""
