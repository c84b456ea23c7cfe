"""What several alert rules share."""
