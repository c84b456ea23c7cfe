"""Tables on a narrow terminal."""

import io

from rich.console import Console

from app.table import Table


def test_a_narrow_terminal_cuts_nothing() -> None:
    table, written = Table("destination", box=None), io.StringIO()
    table.add_row("2001:db8:1234:5678:9abc:def0:1234:5678")
    Console(file=written, width=20).print(table)
    assert "".join(written.getvalue().split()) == "destination2001:db8:1234:5678:9abc:def0:1234:5678"
