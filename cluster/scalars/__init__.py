"""The values that cluster.yaml is made of: kinds, names, ranges."""
