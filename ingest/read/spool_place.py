"""Where the spool is: the one folder that several processes share."""

import os
from pathlib import Path

from app.errors import UserError
from cluster.model import Cluster

SERVICE = "CLUSTERFLOW_SERVICE"
"""Variable that says that each command runs in a folder of its own, as systemd's units have it."""


def spool_folder(cluster: Cluster) -> Path:
    """Return ``collector.spool``.

    Raises:
        UserError: it is relative, and so another folder for each service: what the collector writes nobody would read.
    """
    folder = Path(cluster.collector.spool)
    if os.environ.get(SERVICE) and not folder.is_absolute():
        raise UserError(
            f"collector.spool: {folder}: expected an absolute path, as each service runs in a folder of its own",
            f"name the one that all of them share, such as /var/spool/clusterflow; here it would be {folder.resolve()}",
        )
    return folder
