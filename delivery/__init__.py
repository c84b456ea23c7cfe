"""Events to the systems people already have, and reports."""
