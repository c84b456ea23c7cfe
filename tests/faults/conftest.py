"""How long the suite of faults takes."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="faults: as often and as long as docs/reliability.md says")


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long", default=False))
