"""Starts ``ottla broker`` by forking a process that has imported it, which takes a third of the CPU of a new Python.

A broker that is forked has the arguments, environment, folder and descriptors of a new process. That a new process does
the same is shown by tests/server/test_command.py, and by the broker that the tests of a worker share.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

CAN_FORK = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
_LARGEST = 1 << 20
# The variables that Python, or a module of the broker, reads when it is imported.
_EARLY = ("PYTHON", "LD_", "MALLOC_", "OTTLA_EXTENSION", "TZ")


class ForkedBroker:
    """A broker process with those methods of ``subprocess.Popen`` that tests need."""

    def __init__(self, pid: int, parent: _Parent, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._parent = parent
        self._handle = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["ottla", "broker"], timeout or 0)
        return code

    def send_signal(self, sign: int) -> None:
        with self._lock:
            if self.returncode is None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, sign)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        """The exit code, once it has ended; waits that long, or forever for None."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                return None
            with self._lock:
                if self.returncode is None:
                    self.returncode = self._parent.reap(self.pid)
                    os.close(self._handle)
        return self.returncode


class _Parent:
    """The process that forks brokers. It ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            # With -P the program's own folder is not on the path.
            command = [sys.executable, "-P", __file__, str(other.fileno())]
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(
                command,
                stdin=nothing,
                stdout=nothing,
                env={**os.environ, "PYTHONDEVMODE": ""},
                pass_fds=[other.fileno()],
            )
        atexit.register(self.close)

    @property
    def lives(self) -> bool:
        """Whether it can still fork."""
        return self._process.poll() is None

    def fork(self, arguments: Sequence[str], errors: int) -> ForkedBroker:
        reading, writing = os.pipe()
        request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        try:
            answer = self._ask(request, [writing, errors])
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return ForkedBroker(answer, self, os.fdopen(reading, "rb"))

    def reap(self, pid: int) -> int:
        return self._ask({"reap": pid})

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(descriptors))
            answer = self._socket.recv(_LARGEST)
        if not answer:
            raise RuntimeError("the process that forks brokers has ended")
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)


_parent: _Parent | None = None
_parent_of = 0


def start(arguments: Sequence[str], errors: int) -> ForkedBroker | None:
    """Start ``ottla broker`` with these arguments and this descriptor as standard error; None if it can't be forked.

    It can't where a test has changed what Python or the broker's modules read when they are imported.
    """
    global _parent, _parent_of
    if not CAN_FORK or _early() != _AT_FIRST:
        return None
    if _parent is None or _parent_of != os.getpid():
        _parent, _parent_of = _Parent(), os.getpid()
    return _parent.fork(arguments, errors) if _parent.lives else None


def _early() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_EARLY)}


_AT_FIRST = _early()


def _serve(control: socket.socket) -> list[str]:
    """Fork on request, until the other side is gone. Returns the arguments in each child."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, _LARGEST, 2)
        if not data:
            sys.exit(0)
        request = json.loads(data)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if not pid:
            control.close()
            for number, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.environ.clear()
            os.environ.update(request["environment"])
            os.chdir(request["folder"])
            sys.path.insert(0, request["folder"])  # as with `python -m`
            found: list[str] = request["arguments"]
            return found
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(str(pid).encode())


def main() -> None:
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    import gc
    import importlib

    for name in _MODULES:
        importlib.import_module(name)
    from ottla_broker.cli import broker

    gc.freeze()
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, interrupted)
    sys.argv = ["ottla broker", *arguments]
    broker(prog_name="ottla broker")


_MODULES = (
    "ottla_broker.daemon",
    "ottla_broker.cluster.member",
    "ottla_broker.coordinator.transaction.coordinator",
    "ottla_broker.group_coordinators",
    "ottla_broker.store.zookeeper",
    "structlog",
    "uvloop",
)

if __name__ == "__main__":
    main()
