"""The state of everything in one look, and of the lists about addresses."""
