"""What every command stands on: groups of commands, errors, log lines, units, a small HTTP server."""
