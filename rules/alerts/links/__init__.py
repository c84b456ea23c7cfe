"""The network under training jobs, judged over minutes."""
