"""Verdicts on the network: breaches of the segmentation, capacity, coverage."""
