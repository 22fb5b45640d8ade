"""Runs pytest for the gate: ``.ci/pytest.py ARGUMENTS`` is ``python -m pytest ARGUMENTS`` with a second chance.

Failed tests run once more on their own, on an otherwise idle machine. A test that fails again has failed. A test that
passes lacked time or memory, or events came in an order that the test or Ottla doesn't expect. The gate stays open,
but reports the test, and appends it to the file in OTTLA_CI_UNSTEADY. If many tests fail, chance is not the reason,
and they get no second chance.

The last line has the numbers of both runs together, in pytest's format.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

MOST = 20
"""The most failed tests that are run again."""
_SOME_FAILED = 1  # pytest's exit code; others are no failures of tests
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|deselected|xfailed|xpassed|errors?|warnings?)\b")


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as cache:
        code, counts = run([*arguments, "-o", f"cache_dir={cache}"])
        if code != _SOME_FAILED:
            return code
        failed = last_failed(Path(cache))
        if not failed or len(failed) > MOST:
            return code
        print(f"\n== {len(failed)} tests failed; running them again on their own:", flush=True)
        code, again = run([*arguments, "-o", f"cache_dir={cache}", "--last-failed", "-n", "0"])
        unsteady = [name for name in failed if name not in last_failed(Path(cache))]
        if again["passed"] + again["skipped"] < len(unsteady):
            unsteady = []  # not even run, as when the second run was stopped
    counts["passed"] += again["passed"]
    counts["failed"], counts["error"] = again["failed"], again["error"]
    report(arguments, unsteady)
    print(
        ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "error", "skipped")), flush=True
    )
    return code


def run(arguments: list[str]) -> tuple[int, Counter[str]]:
    """Run pytest and show what it says; its exit code, and the numbers in its closing line."""
    command = [sys.executable, "-m", "pytest", *arguments]
    closing = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if re.search(r" in [0-9.]+s", line) and _COUNT.search(line):
                closing = line
    counts = Counter({kind.removesuffix("s"): int(number) for number, kind in _COUNT.findall(closing)})
    return process.returncode, counts


def last_failed(cache: Path) -> list[str]:
    """The tests that failed when they were run last."""
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def report(arguments: list[str], unsteady: list[str]) -> None:
    if not unsteady:
        return
    print("\n== UNSTEADY: failed with all others, passed alone. Fix the test or Ottla:")
    for name in unsteady:
        print(f"==   {name}")
    note = os.environ.get("OTTLA_CI_UNSTEADY")
    if note:
        with open(note, "a") as file:
            file.writelines(f"{name}   (pytest {' '.join(arguments)})\n" for name in unsteady)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
