"""A file that a cluster.yaml may name under `boards`; loading the cluster does not run it."""

raise AssertionError("cluster.load runs no boards")
