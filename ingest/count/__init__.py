"""From flows to the totals of windows."""
