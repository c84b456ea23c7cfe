"""Verdicts on what leaves the cluster: first contacts, new networks, slow leaks, late matches."""
