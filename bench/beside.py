"""What ``make run`` runs beside the broker: it says what to try, and runs the console for the browser.

It reads the broker's standard output. The line of a broker that is ready has its address; the end of the output is the
end of the broker, and of the console.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from harness.children import ending_with_parent
from harness.java import Unavailable

from bench.local_options import check_free

_READY: Final = re.compile(r"accepts clients at \w+://(\S+?)[, ].*data in (.+)\)$")
_USUAL: Final = "127.0.0.1:9092"
_USAGE: Final = """
the broker serves at {address}; try in another terminal:

  source {venv}/bin/activate{export}
  ottla topics create orders
  printf 'Ada\\tone desk\\nAlan\\ttwo chairs\\n' | ottla produce orders --key-separator '\\t'
  ottla consume orders --exit --show offset,key,value

data is in {folder}; Ctrl-C stops everything; docs/getting-started.md goes on from here
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make run")
    parser.add_argument("venv", type=Path)
    parser.add_argument("console", help="HOST:PORT of the console; empty for none")
    options = parser.parse_args()
    # Ctrl-C is for the broker and the console; what the broker prints while it stops is passed on.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    for line in sys.stdin:
        print(line, end="", flush=True)
        if (ready := _READY.search(line)) is not None:
            address, folder = ready.groups()
            export = "" if address == _USUAL else f"\n  export OTTLA_BOOTSTRAP_SERVER={address}"
            print(_USAGE.format(address=address, venv=options.venv, export=export, folder=folder), flush=True)
            # Its processes end with this one, and so with the broker.
            console = (options.venv, options.console, address)
            threading.Thread(target=run_console, args=console, daemon=True).start()
    return 0


def run_console(venv: Path, listen: str, bootstrap: str) -> None:
    """Install what the console needs, and run it until it ends. It prints where it is."""
    if not listen:
        return
    host, _, port = listen.rpartition(":")
    try:
        check_free(int(port))
    except Unavailable:
        print(f"the console is left out: port {port} is taken (make run CONSOLE={host}:PORT)", flush=True)
        return
    install = ["make", "--no-print-directory", "-s", f"VENV={venv}", f"{venv}/.web"]
    command = [sys.executable, "-m", "ottla_cli", "console", "-b", bootstrap, "--listen", listen]
    for each in (install, command):
        if subprocess.run(
            each, stdin=subprocess.DEVNULL, check=False, preexec_fn=ending_with_parent()
        ).returncode:
            print("the console is left out", flush=True)
            return


if __name__ == "__main__":
    sys.exit(main())
