"""From pmacct's flow records to points in InfluxDB."""
