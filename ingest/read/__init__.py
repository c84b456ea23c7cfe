"""From the files of the spool to frames of records."""
