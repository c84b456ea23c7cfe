"""Feed targets with bytes that reach more and more of their code, by atheris: scripts/fuzz [TARGET...] [--for SECONDS].

What breaks one is kept in var/fuzz/TARGET/found, an input for each place and error; what reached new code in
var/fuzz/TARGET/corpus, where the next run goes on. `scripts/fuzz TARGET FILE...` has the target read files once more,
without atheris.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from hashlib import sha256
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
HOME = REPOSITORY / "var/fuzz"
PACKAGES = [
    "app",
    "cluster",
    "store",
    "operations",
    "enrichment",
    "ingest",
    "analysis",
    "delivery",
    "simulate",
    "maxminddb",
    "tarfile",
]
"""Whose coverage counts; what is written in C or Rust has none."""

QUICK = "/dev/shm"  # noqa: S108 - a folder of its own is made there, for files that are written with each input
MEMORY_MB = 1024
HANGS_SECONDS = 60
"""By the clock on the wall, which also runs while others have the processor; `targets.SECONDS` is what may be used."""

MOST_WORDS = 800
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]{2,30}")


def _fuzz(targets: Any, atheris: Any, name: str, seconds: int, folder: Path) -> None:
    """Feed a target until the time is over, or a limit of libFuzzer ends this process."""
    target, place, known = targets.TARGETS[name], HOME / name, set[str]()

    def one(data: bytes) -> None:
        try:
            targets.check(target, data, folder)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - polars panics with one that is no Exception
            frames = traceback.extract_tb(error.__traceback__)
            *_, last = (frame for frame in frames if frame.filename.startswith(str(REPOSITORY)))
            key = f"{type(error).__name__} {last.filename.rpartition('/')[2]}:{last.lineno}"
            if key not in known:
                known.add(key)
                path = place / "found" / f"error-{sha256(data).hexdigest()[:12]}"
                path.write_bytes(data)
                sys.stderr.write(f"\nFOUND {key}: {path.name}: {' '.join(str(error).split())[:200]}\n")

    words: dict[bytes, None] = {}
    for number, seed in enumerate(target.seeds()):
        (place / "seeds" / str(number)).write_bytes(seed)
        words.update(dict.fromkeys(_WORD.findall(seed)))
    (place / "words").write_text("".join(f'"{word.decode()}"\n' for word in list(words)[:MOST_WORDS]))
    atheris.Setup(
        [
            "fuzz", f"-max_total_time={seconds}", f"-max_len={targets.LONGEST}", f"-timeout={HANGS_SECONDS}",
            f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={place}/found/", f"-dict={place}/words",
            "-print_final_stats=1", str(place / "corpus"), str(place / "seeds"),
        ],
        one,
    )  # fmt: skip
    atheris.Fuzz()


def _run(targets: Any, atheris: Any, name: str, seconds: int) -> bool:
    """Fuzz a target in a process of its own, one more where a limit has ended it; return whether nothing was found."""
    place = HOME / name
    for part in ("corpus", "found", "seeds"):
        (place / part).mkdir(parents=True, exist_ok=True)
    log, deadline = place / "log", time.monotonic() + seconds
    log.write_bytes(b"")
    while (left := round(deadline - time.monotonic())) > 0:
        folder = Path(tempfile.mkdtemp(dir=QUICK if os.access(QUICK, os.W_OK) else None))
        before = log.stat().st_size
        if not (child := os.fork()):
            with log.open("ab") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            _fuzz(targets, atheris, name, left, folder)
            os._exit(0)
        os.waitpid(child, 0)
        shutil.rmtree(folder)
        if b"cov:" not in log.read_bytes()[before:]:
            # It did not even begin.
            break
    text = log.read_text(errors="replace")
    runs = sum(map(int, re.findall(r"number_of_executed_units: (\d+)", text)))
    coverage = max(map(int, re.findall(r" cov: (\d+)", text)), default=0)
    found = sorted(path.name for path in (place / "found").iterdir())
    for line in re.findall(r"^(?:FOUND .*|.*ERROR: libFuzzer.*)$", text, re.MULTILINE):
        sys.stdout.write(f"  {line}\n")
    sys.stdout.write(f"{name}: {runs:,} inputs, coverage {coverage:,}, {len(found)} in {place}/found\n")
    sys.stdout.flush()
    return bool(runs) and not found


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, or those named; or one, and files")
    parser.add_argument("--for", dest="seconds", type=int, default=60, help="seconds for each")
    given = parser.parse_args()
    # One thread of polars: what a target takes is then the same each time.
    os.environ["POLARS_MAX_THREADS"] = "1"
    if given.targets[1:] and all(Path(one).is_file() for one in given.targets[1:]):
        import targets  # noqa: PLC0415 - below, its coverage is counted

        for one in given.targets[1:]:
            with tempfile.TemporaryDirectory() as folder:
                targets.check(targets.TARGETS[given.targets[0]], Path(one).read_bytes(), Path(folder))
            sys.stdout.write(f"{one}: as it should be\n")
        return 0
    import atheris  # noqa: PLC0415 - not installed for tests

    with atheris.instrument_imports(include=PACKAGES):
        import targets  # noqa: PLC0415

    if unknown := [one for one in given.targets if one not in targets.TARGETS]:
        parser.error(f"{unknown[0]}: no target; there are {', '.join(targets.TARGETS)}")
    sound = [_run(targets, atheris, name, given.seconds) for name in given.targets or targets.TARGETS]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
