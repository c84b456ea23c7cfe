"""The flow archive: every normalised record in Parquet, for questions after an alert."""
