"""The version that is installed."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def own_version() -> str:
    """Return clusterflow's version; ``unknown`` where it runs without being installed."""
    try:
        return version("clusterflow")
    except PackageNotFoundError:
        return "unknown"
