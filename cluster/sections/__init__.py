"""Sections of cluster.yaml, a module each."""
