"""pmacct's daemons: their configuration, their supervision, what they write."""
