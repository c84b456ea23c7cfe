"""Names that mean harm to whoever puts them into text of another language."""

HOSTILE = [
    "a,b=c d",
    "a\\",
    "a\\,b",
    'a"b',
    "a'b",
    "a\nb=1i 1\ninjected x=1i",
    "a\rb",
    '\'; DROP MEASUREMENT "traffic"; --',
    "' OR 1=1 OR '",
    "\\' OR '1'='1",
    '"; DROP SERIES FROM "traffic"',
    "/* x */ -- y",
    '{{ template "clusterflow.title" . }}',
    "{{ range $k, $v := .Labels }}{{ $v }}{{ end }}",
    "}}{{",
    "${job:regex}",
    "$timeFilter",
    "$__interval",
    "$__all",
    "$__file{/etc/passwd}",
    "$__env{HOME}",
    "$HOME",
    "[[job]]",
    ".*",
    "^(a+)+$",
    "<script>alert(1)</script>",
    "javascript:alert(1)",
    "../../etc/passwd",
    "%s%n%d",
    "a\tb",
    "a\x1b[2Jb",
    "a\x7fb",
    "a\x85b",
    "a\u2028b",
    "\u202eabc",
    "\u0430dmin",
    "\uff46\uff55\uff4c\uff4c",
    "🙂",
    " a ",
    "#a",
    "_field",
    "time",
    "x" * 10_000,
]
"""Each is a text that a name from the network, a hook or a file may have."""


def shown(text: str) -> str:
    """Return a short id for a test."""
    return ascii(text)[1:25]
