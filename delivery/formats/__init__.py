"""Formats of delivered events."""
