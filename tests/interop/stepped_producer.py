"""Java's transactional producer, driven step by step."""

from __future__ import annotations

import subprocess

from tests.support import late_scenarios as late


class JavaDriver:
    """programs/TransactionalProducer.java."""

    def __init__(self, command: list[str], group: str = late.GROUP) -> None:
        self._group = group
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._step("init")

    def _step(self, step: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(step + "\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise late.StepFailed(f"{step}: {answer}")

    def begin(self) -> None:
        self._step("begin")

    def send(self, value: str) -> None:
        self._step(f"send {value}")

    def flush(self) -> None:
        self._step("flush")

    def offsets(self, offset: int) -> None:
        self._step(f"offsets {self._group} {offset}")

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def notice_cut(self) -> None:
        """Java's producer aborts in either order."""

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
