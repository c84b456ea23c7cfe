"""Training jobs and the network under them."""
