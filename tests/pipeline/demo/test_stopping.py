"""The demo that is stopped, by a signal or by a kill: nothing that it has started goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.support.waiting import wait_for

SMALL = """
import sys
from bench.pipeline import __main__, data
whole = data.frame
data.frame = lambda source: whole(source).head(1000)
sys.exit(__main__.main())
"""
"""`make pipeline` with little data."""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind(sign: signal.Signals, tmp_path: Path) -> None:
    """Stopped while Spark starts: the driver, its Java, and the broker are there then."""
    command = [sys.executable, "-c", SMALL, "--keep", str(tmp_path / "kept")]
    demo = subprocess.Popen(
        command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    family: list[psutil.Process] = []
    try:
        process = psutil.Process(demo.pid)

        def started() -> bool:
            family[:] = process.children(recursive=True)
            return any(each.name() == "java" for each in family)

        wait_for(started, "the driver to start Java", 120, every=0.2)
        demo.send_signal(sign)
        output, _ = demo.communicate(timeout=60)
        assert "Traceback" not in output
        if sign == signal.SIGTERM:
            assert demo.returncode == 128 + signal.SIGTERM
            assert output.splitlines()[-1].endswith("stopped")
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
    finally:
        for each in [demo, *family]:
            if isinstance(each, subprocess.Popen) or each.is_running():
                each.kill()
        demo.wait()
