import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.scalars.ranges import LONGEST, MOST, ends, expand, has_range


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("gpu-{01..03}", ["gpu-01", "gpu-02", "gpu-03"]),
        ("gpu-{9..11}", ["gpu-9", "gpu-10", "gpu-11"]),
        ("gpu-{08..11}", ["gpu-08", "gpu-09", "gpu-10", "gpu-11"]),
        ("10.20.0.{1..2}", ["10.20.0.1", "10.20.0.2"]),
        ("r{1..2}-n{5..6}", ["r1-n5", "r2-n6"]),
        ("{7..7}", ["7"]),
        ("plain", ["plain"]),
        ("", [""]),
    ],
)
def test_what_a_pattern_stands_for(pattern: str, names: list[str]) -> None:
    assert expand(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("gpu-{1..}", "a range such as"),
        ("gpu-{1-4}", "a range such as"),
        ("gpu-{a..c}", "a range such as"),
        ("gpu-}1..2{", "a range such as"),
        ("gpu-{{1..2}}", "a range such as"),
        ("gpu-{4..1}", "counts up"),
        ("r{1..2}-n{1..3}", "same length"),
        (f"gpu-{{1..{MOST + 1}}}", "at most"),
        ("a" * LONGEST + "{1..2}", "at most 200 characters"),
    ],
)
def test_what_is_no_pattern(pattern: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        expand(pattern)


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 5))
def test_a_range_has_each_number_once(first: int, more: int, digits: int) -> None:
    text = str(first).zfill(digits)
    names = expand(f"n{{{text}..{first + more}}}")
    assert [int(name[1:]) for name in names] == [*range(first, first + more + 1)]
    assert all(len(name) >= digits + 1 for name in names)
    assert has_range(f"n{{{text}..{first + more}}}")
    assert not has_range(names[0])


@pytest.mark.parametrize("pattern", ["gpu-{08..11}", "r{1..3}-n{5..7}", "plain", "{9..9}"])
def test_the_ends_of_a_pattern(pattern: str) -> None:
    names = expand(pattern)
    assert ends(pattern) == (names[0], names[-1], len(names))
