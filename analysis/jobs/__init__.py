"""Who knows which jobs run: one module a kind of source, `sources` puts them together."""
