"""Flow logs of cloud providers: their files, and the records in them."""
