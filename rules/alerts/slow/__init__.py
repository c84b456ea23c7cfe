"""Data that leaves slowly, judged over days."""
