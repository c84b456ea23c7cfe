"""Sections that say what the cluster is made of: groups, nodes, exporters, and what they may do."""
