"""Compile our C libraries beside their sources, for machines that have no compiler: `python -m ingest.compile`."""

import sys

from app.errors import ClusterflowError
from ingest import quick
from ingest.collect import quick_printf

if __name__ == "__main__":
    try:
        for library in (quick_printf.LIBRARY, quick.LIBRARY):
            if not library.shipped.exists():
                library.compile_to(library.shipped)
    except ClusterflowError as error:
        sys.exit("".join(error.lines()))
