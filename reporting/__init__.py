"""Reports of a period for people who were not there: one HTML file, or the same facts as JSON."""
