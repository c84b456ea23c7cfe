"""Panels that several boards share."""
