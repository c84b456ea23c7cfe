"""Scenarios: how their files are read, and what they play. The files themselves are in library/."""
