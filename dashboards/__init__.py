"""Grafana boards as code (grafanalib)."""
