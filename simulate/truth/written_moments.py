"""Moments as the ground truth writes them."""

from datetime import UTC, datetime


def iso(milliseconds: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
