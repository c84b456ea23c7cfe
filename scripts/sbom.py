"""sbom.json: what is installed beside ourselves, with licences, as CycloneDX 1.5; made from requirements.lock alone.

    python scripts/sbom.py            write it
    python scripts/sbom.py --check    fail if it is not what the lock says, or if a licence is none that we accept

Licences come from the metadata of the installed packages, which are those of the lock. No network, no clock: the same
lock gives the same file.
"""

import hashlib
import json
import re
import sys
import tomllib
import uuid
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
LOCK, TARGET = REPOSITORY / "requirements.lock", REPOSITORY / "sbom.json"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+) \\$")
_VIA = re.compile(r"^ +#(?: via)? +([A-Za-z0-9._-]+)(?: \(.*\))?$")
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")

ACCEPTED = (
    "MIT", "MIT-0", "MIT-CMU", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Apache-2.0", "MPL-2.0", "ISC", "PSF-2.0",
    "Zlib", "CC0-1.0", "Unlicense", "Python-2.0",
)  # fmt: skip
"""Licences whose terms a closed network can meet without publishing anything."""

_NAMES = {
    "mit": "MIT", "mit license": "MIT", "the mit license": "MIT",
    "bsd": "BSD-3-Clause", "bsd license": "BSD-3-Clause", "new bsd license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause", "bsd-3-clause": "BSD-3-Clause", "bsd 3-clause": "BSD-3-Clause",
    "bsd-2-clause": "BSD-2-Clause",
    "apache 2.0": "Apache-2.0", "apache-2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0", "apache software license 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0", "apache license, version 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "mpl-2.0": "MPL-2.0", "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "isc license (iscl)": "ISC", "isc": "ISC", "psf-2.0": "PSF-2.0", "python software foundation license": "PSF-2.0",
    "dual license": "Apache-2.0 OR BSD-3-Clause",
}  # fmt: skip
"""What packages wrote before there were licence expressions."""


def pins() -> dict[str, tuple[str, list[str]]]:
    """Return the lock: name -> version, and which packages asked for it."""
    found: dict[str, tuple[str, list[str]]] = {}
    name = ""
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if match := _PIN.match(line):
            name = match[1]
            found[name] = match[2], []
        elif name and (match := _VIA.match(line)):
            found[name][1].append(match[1])
    return found


def licence_of(name: str) -> str:
    """Return a package's licence as an SPDX expression; what it says itself, where that is none."""
    try:
        facts = metadata(name)
    except PackageNotFoundError:
        return "not installed here"
    if expression := facts.get("License-Expression"):
        return str(expression)
    classified = [
        line.rpartition(" :: ")[2] for line in facts.get_all("Classifier") or [] if line.startswith("License ::")
    ]
    stated = (facts.get("License") or "").splitlines()
    told = [text for text in (*classified, *stated[:1]) if text]
    known = [_NAMES[text.lower()] for text in told if text.lower() in _NAMES]
    return known[0] if known else " / ".join(told) or "unknown"


def document() -> dict[str, Any]:
    """Return the bill of materials."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    locked = pins()
    purls = {name: f"pkg:pypi/{name.lower()}@{number}" for name, (number, _) in locked.items()}
    needs: dict[str, set[str]] = {own: set(), **{purl: set() for purl in purls.values()}}
    for name, (_, parents) in locked.items():
        for parent in parents:
            needs[purls.get(parent, own)].add(purls[name])
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": own, "name": project["name"], "version": project["version"],
                "purl": own, "licenses": [{"expression": project["license"]}],
            },
            "properties": [{"name": "requirements.lock:sha256", "value": digest}],
        },
        "components": [
            {
                "type": "library", "bom-ref": purls[name], "name": name, "version": number, "purl": purls[name],
                "licenses": [{"expression": licence_of(name)}],
            }
            for name, (number, _) in sorted(locked.items())
        ],
        "dependencies": [{"ref": ref, "dependsOn": sorted(wanted)} for ref, wanted in sorted(needs.items())],
    }  # fmt: skip


def unaccepted(bill: dict[str, Any]) -> list[str]:
    """Return the components whose licence is none of ours to accept, each with it."""
    found = []
    for component in bill["components"]:
        expression = component["licenses"][0]["expression"]
        words = re.sub(r"[()]", " ", expression).split()
        choices = " ".join(words).split(" OR ")
        if not any(all(word in (*ACCEPTED, "AND") for word in choice.split()) for choice in choices):
            found.append(f"{component['name']}: {expression}")
    return found


def main() -> int:
    """Write or check it; return the exit code."""
    bill = document()
    text = json.dumps(bill, indent=1) + "\n"
    if bad := unaccepted(bill):
        print(f"licences to look at: {'; '.join(bad)}")
        return 1
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
        print(f"sbom.json: {len(bill['components'])} packages")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print("sbom.json is not what requirements.lock says: run `python scripts/sbom.py`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
