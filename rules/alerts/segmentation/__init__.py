"""Traffic between groups that should not talk."""
