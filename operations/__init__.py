"""Keeping it running: generated files, status, lists, backup and restore."""
