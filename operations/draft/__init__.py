"""A first cluster.yaml, drafted from what was seen on the network."""
