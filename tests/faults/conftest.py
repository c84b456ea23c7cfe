"""The faults of the suite and what came of them, for the table in docs/reliability.md."""

import pytest
from trouble import Record

from cluster import schema
from simulate.faults import RESULTS, Result, note
from simulate.reckoning import Reckoning


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="faults: as often and as long as docs/reliability.md says")


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long", default=False))


@pytest.fixture
def record() -> Record:
    """Note what a fault did, and fail unless it is what is stated."""

    def of(fault: str, result: Reckoning, *, trials: int = 1, stated: int = 0, counted: str = "") -> None:
        gaps = [one for one in result.differences if one.what.startswith("groups ") and one.unit == schema.BYTES.name]
        lost = sum(max(gap.sent - gap.stored, 0) for gap in gaps)
        doubled = sum(max(gap.stored - gap.sent, 0) for gap in gaps)
        note(RESULTS, Result(fault, trials, lost, doubled, counted))
        told = [str(difference) for difference in result.differences]
        assert (lost, doubled) == (stated, 0), told
        assert stated or not told, told
        assert result.checked > 50
        assert result.sent_bytes > 10**9

    return of
