"""p95, peak, trend and the date of being full, on series with known answers."""

import numpy as np
import pytest

from analysis.detectors.fabric.capacity import DAY, fullness, nearest_rank

NOW = 1_800_000_000.0
DAYS = np.arange(30.0)


def full(
    minutes: list[float] | np.ndarray, days: np.ndarray | None = None, limit: float = np.nan
) -> tuple[float, float, float, float, float]:
    table = np.array([minutes], float).T
    history = np.zeros((0, 1)) if days is None else days[:, None]
    found = fullness(NOW, table, history, DAYS[: len(history)], np.array([limit]))
    return tuple(float(part[0]) for part in (found.p95, found.peak, found.utilisation, found.trend, found.full_at))  # type: ignore[return-value]


def test_p95_is_the_nearest_rank() -> None:
    """Of 1 to 100 that is 95; of 1440 minutes of which 72 (5 %) are high it is the quiet level, of which 73 are not."""
    assert nearest_rank(np.arange(1.0, 101.0)[:, None])[0] == 95
    quiet, busy = np.full(1368, 10.0), np.full(72, 500.0)
    assert full(np.concatenate([busy, quiet]))[:2] == (10, 500)
    assert full(np.concatenate([busy, [500.0], quiet[1:]]))[0] == 500


def test_a_line_of_days_reaches_its_limit_when_it_must() -> None:
    """40 now, 2 more a day, limit 100: in 30 days. The trend is that of the days, the level that of the minutes."""
    p95, peak, used, trend, when = full(np.full(1440, 40.0), 10 + 2 * DAYS, 100)
    assert (p95, peak, used, trend) == (40, 40, 0.4, 2)
    assert when == NOW + 30 * DAY


@pytest.mark.parametrize(
    ("days", "limit", "why"),
    [
        (10 + 0 * DAYS, 100, "it does not grow"),
        (70 - 2 * DAYS, 100, "it shrinks"),
        (10 + 0.01 * DAYS, 100, "it takes sixteen years"),
        (10 + 2 * DAYS, np.nan, "nobody knows the limit"),
        (10 + 2 * DAYS[:6], 100, "six days have no trend"),
        (np.tile([10.0, 30, 10, 30, 10], 6), 100, "it goes up and down"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_a_sure_rise_to_a_known_limit_there_is_no_date(days: np.ndarray, limit: float, why: str) -> None:
    assert np.isnan(full(np.full(1440, 40.0), days, limit)[4]), why


def test_what_is_over_its_limit_is_full_now() -> None:
    assert full(np.full(1440, 120.0), 70 - 2 * DAYS, 100)[4] == NOW
    assert full(np.full(1440, 120.0), None, 100)[4] == NOW, "whatever its past"


def test_one_odd_day_does_not_make_a_date() -> None:
    days = 10 + 0 * DAYS
    days[20] = 95
    assert np.isnan(full(np.full(1440, 40.0), days, 100)[4])


def test_an_hour_must_have_been_heard() -> None:
    assert np.isnan(full(np.full(59, 40.0), 10 + 2 * DAYS, 100)[0])
    assert full(np.full(60, 40.0))[0] == 40
