"""Data that leaves, or somebody who should not be here."""
