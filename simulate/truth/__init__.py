"""The ground truth, and what was found compared with it."""
