"""The store: its schema, InfluxDB, queries in InfluxQL, points, and which version of the schema it has."""
