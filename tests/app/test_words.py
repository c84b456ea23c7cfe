import pytest

from app.words import amount, lasting, one_line


@pytest.mark.parametrize(
    ("volume", "text"), [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (999_600, "1 MB"), (41_200_000_000, "41.2 GB")]
)
def test_sizes_for_people(volume: int, text: str) -> None:
    assert amount(volume) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.4, "0.4s"), (3.0, "3s"), (59.6, "1m"), (137, "2m 17s"), (3600, "1h"), (3661, "1h 1m"),
     (86_400 * 3 + 7200, "3d 2h"), (86_400, "1d"), (86_405, "1d")],
)  # fmt: skip
def test_lengths_of_time_in_two_units(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


def test_a_text_of_others_is_one_short_line() -> None:
    assert one_line("  Example\r\nHost\x00\tB.V.\u202e\u2028 ") == "Example Host B.V."
    assert one_line("São Paulo") == "São Paulo"
    assert len(one_line("x" * 10_000_000, 120)) == 120
    assert one_line("\x1b[31m") == "[31m"
    assert one_line("\ud800") == ""
