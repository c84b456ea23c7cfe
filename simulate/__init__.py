"""Synthetic AI clusters with ground truth, emitted as real export packets or spool records."""
