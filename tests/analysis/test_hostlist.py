"""Slurm's lists of nodes, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.jobs.hostlist import compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[01-03,10]", ["gpu-01", "gpu-02", "gpu-03", "gpu-10"]),
        ("gpu-[9-11]", ["gpu-9", "gpu-10", "gpu-11"]),
        ("gpu-[098-101]", ["gpu-098", "gpu-099", "gpu-100", "gpu-101"]),
        ("a[1-2],b,c3", ["a1", "a2", "b", "c3"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("gpu-[1-9:2,04-12/4]", ["gpu-1", "gpu-3", "gpu-5", "gpu-7", "gpu-9", "gpu-04", "gpu-08", "gpu-12"]),
        ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
        ("gpu-{01..02}", ["gpu-01", "gpu-02"]),
        ("a b;c,a", ["a", "b", "c"]),
        ("", []),
    ],
)
def test_lists(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu-[1-2", "brackets that match"),
        ("gpu-1-2]", "brackets that match"),
        ("gpu-[[1]]", "brackets that match"),
        ("gpu-[]", "numbers in brackets"),
        ("gpu-[a-b]", "numbers in brackets"),
        ("gpu-[1-9:0]", "numbers in brackets"),
        ("gpu-[1-999999999:2]", "at most 65,536"),
        ("gpu-[5-1]", "a range that counts up"),
        ("gpu-[1-99999999]", "at most 65,536"),
        ("a[1-999]b[1-999]", "at most 65,536"),
        ("gpu-{1..}", "a range such as"),
        ("gpu-[1-65536,1-65536]", "at most 65,536"),
        ("gpu-[1-60000],gpu-[1-60000]", "at most 65,536"),
        ("a[1-60000][1-60000]", "at most 65,536"),
        ("a" * 253 + "[1-2]", "at most 253 characters"),
    ],
)
def test_what_is_no_list(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        expand(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu-01", "gpu-02", "gpu-03", "gpu-07"], "gpu-[01-03,07]"),
        (["gpu-9", "gpu-10", "gpu-11"], "gpu-9,gpu-[10-11]"),
        (["b", "a", "a"], "a,b"),
        (["n1-ib", "n2-ib"], "n[1-2]-ib"),
        ([], ""),
    ],
)
def test_short_forms(names: list[str], text: str) -> None:
    assert compress(names) == text


@given(st.sets(st.from_regex(r"[a-z][a-z.-]{0,3}[0-9]{0,4}([a-z-][0-9]{0,3})?", fullmatch=True)))
def test_short_forms_stand_for_the_same_names(names: set[str]) -> None:
    assert set(expand(compress(names))) == names
