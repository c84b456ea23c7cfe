"""From flows to packets, datagrams and spool files."""
