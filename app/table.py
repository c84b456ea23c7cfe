"""The table that commands print."""

from typing import Any

from rich.table import Table as RichTable


class Table(RichTable):
    """Wraps what a narrow terminal has no room for: names, addresses and numbers are to be copied, not cut."""

    def add_column(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as rich takes them
        """Add a column, as rich's tables do."""
        super().add_column(*args, **{"overflow": "fold"} | options)
