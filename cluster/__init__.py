"""The model of one AI cluster: cluster.yaml as frozen objects, and the schema of what is stored about it."""
