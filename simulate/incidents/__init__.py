"""Incidents: how they are staged, and which alerts they owe."""
