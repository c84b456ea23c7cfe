"""Who sends flow records to this host: a copy of the packets, looked at beside the collector."""
