"""What every command stands on: groups of commands, errors, log lines, units, a small HTTP server."""

import os

# Before numpy is imported: no matrix here pays for threads, which spin for a while after each start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
