"""Threat feeds."""
