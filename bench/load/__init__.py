"""Load for benches."""
