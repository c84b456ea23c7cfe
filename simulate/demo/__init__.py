"""The demo: a live cluster on one machine."""
