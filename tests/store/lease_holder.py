"""A process that leads, or stands by, until it is stopped, and says so; its times are a quarter of the real ones.

It prints ``on CLOCK`` when it begins to lead, and ``off CLOCK`` when it finds that it does not any more, with the last
time at which it was sure: of the clock that all processes of a machine share.
"""

import sys
import time
from pathlib import Path

from app.log import Log
from app.signals import SignalEvent
from cluster.model import StoreApi, StoreSettings
from store import lease

SHORTER = 4


def shorten() -> None:
    """Take a quarter of all times."""
    for name in ("BEAT_SECONDS", "LEADS_SECONDS", "DEAD_SECONDS", "_PATIENCE", "_POLL_SECONDS"):
        setattr(lease, name, getattr(lease, name) / SHORTER)


def main(url: str, database: str, api: str, name: str) -> None:
    """Run until SIGTERM."""
    shorten()
    settings = StoreSettings(url=url, database=database, api=StoreApi(api), lease=True)
    stopping = SignalEvent.of_stop()
    with lease.Lease(settings, "analyze", Path("/state") / name, Log(), stopping) as one:
        while one.wait():
            last = time.clock_gettime(time.CLOCK_BOOTTIME)
            print(f"on {last}", flush=True)  # noqa: T201
            while not one.ends():
                last = time.clock_gettime(time.CLOCK_BOOTTIME)
                time.sleep(0.002)
            print(f"off {last}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
