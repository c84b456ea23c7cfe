"""Ways to destinations."""
