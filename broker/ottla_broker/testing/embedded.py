"""A broker in a process of its own, for as long as a block of code."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from ottla_broker.ephemeral import FOLDER_PREFIX, HOST
from ottla_broker.testing.child import READY, Spec

if TYPE_CHECKING:
    from ottla_broker.testing.requests import Requests

LOG_LINES: Final = 30
"""How many of the broker's last lines an error ends with."""

_PROGRAM = """import json, sys
spec = json.loads(sys.argv[1])
sys.path[:] = spec["path"]
from ottla_broker.ephemeral import FOLDER_PREFIX, HOST
from ottla_broker.testing.child import main
main(spec)
"""


class EmbeddedBrokerError(Exception):
    """The broker did not start, has gone, or refused something; the message says what, with its last lines."""


class TopicMissingError(EmbeddedBrokerError):
    """There is no topic of that name."""


class EmbeddedBroker:
    """A real broker with its own process, port and temporary folder.

    ::

        with EmbeddedBroker(topics={"orders": 3}) as broker:
            Producer(bootstrap_servers=broker.bootstrap_servers)

    ``async with`` does the same without blocking the event loop. Without ``with``: :meth:`start`, and :meth:`close`
    at the end. May be used from any thread.

    The port is the kernel's choice unless given, and belongs to this object until it is closed: a broker that was
    killed comes back on the same one. When this process ends, however it ends, the broker ends too, and its folder is
    removed.

    Args:
        settings: broker configs by their Kafka names; they go before the settings for tests
            (``ottla_broker.ephemeral.SETTINGS``), and those before Kafka's defaults.
        topics: name → partitions, made before the broker is ready.
        port: to listen on, at 127.0.0.1; 0 for any that is free.
        data_dir: where the data lives and stays, written durably; else it lives in a temporary folder, and no time is
            spent on fsync.
        log: the least level of what the broker logs. Below ``warning``, what happens in its first second is written
            at the end of that.
        start_timeout: seconds that a start may take.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | None = None,
        *,
        port: int = 0,
        data_dir: str | os.PathLike[str] | None = None,
        log: Literal["debug", "info", "warning", "error"] = "warning",
        start_timeout: float = 30.0,
    ) -> None:
        self._settings = {key: _text(value) for key, value in (settings or {}).items()}
        self._topics = dict(topics or {})
        self._wanted_port = port
        self._data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._log_level = log
        self._start_timeout = start_timeout
        self._lock = threading.RLock()
        self._remains: _Remains | None = None
        self._finalizer: weakref.finalize[[_Remains], EmbeddedBroker] | None = None

    # ---- what it is

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, for a client's setting of that name. Known, and the same, also while it is down."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._own().port

    @property
    def pid(self) -> int:
        """The id of its process.

        Raises:
            EmbeddedBrokerError: it is down.
        """
        process = self._own().process
        if process is None:
            raise EmbeddedBrokerError("the broker is not running: start() it")
        return process.pid

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        remains = self._remains
        return remains is not None and remains.process is not None and remains.process.poll() is None

    @property
    def data_dir(self) -> Path:
        """Its data folder (``log.dirs``)."""
        return self._data_dir or self._own().folder / "data"

    def log(self, lines: int | None = None) -> str:
        """What it has logged, over all its starts; the last ``lines`` of that."""
        try:
            text = self._log_file.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return text if lines is None else "\n".join(text.splitlines()[-lines:])

    @property
    def _log_file(self) -> Path:
        return self._own().folder / "broker.log"

    # ---- its life

    def start(self) -> Self:
        """Run it, and come back when it accepts clients; at once when it does already.

        After :meth:`stop` or :meth:`kill` it comes back with the same data on the same port.

        Raises:
            EmbeddedBrokerError: it doesn't start; with its last lines.
        """
        with self._lock:
            if self.running:
                return self
            if self._remains is None:
                self._remains = _Remains(self._wanted_port)
                self._finalizer = weakref.finalize(self, _Remains.clear, self._remains)
            remains = self._own()
            remains.reap()
            try:
                self._spawn(remains)
                self._await_ready(remains)
            except BaseException:
                remains.kill()
                raise
            return self

    def _spawn(self, remains: _Remains) -> None:
        # Those two are this object's, whatever the settings say.
        own = {"listeners": f"PLAINTEXT://{HOST}:{remains.port}", "log.dirs": str(self.data_dir)}
        spec: Spec = {
            "path": [os.path.abspath(folder) for folder in sys.path],
            "settings": {**self._settings, **own},
            "topics": self._topics,
            "log_level": self._log_level,
            "durable": self._data_dir is not None,
            "remove": str(remains.folder),
        }
        with self._log_file.open("ab") as log:
            remains.process = subprocess.Popen(
                [sys.executable, *_interpreter_options(), "-c", _PROGRAM, json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=remains.folder,
                # Ctrl-C at a terminal is for whoever runs the tests: the broker is there until they have cleaned up.
                process_group=0,
            )

    def _await_ready(self, remains: _Remains) -> None:
        process = remains.process
        assert process is not None
        assert process.stdout is not None
        with process.stdout as told:
            deadline = time.monotonic() + self._start_timeout
            poll = select.poll()
            poll.register(told, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise self._failure(f"the broker was not ready within {self._start_timeout:g} s")
            if told.readline() != READY:
                code = process.wait()
                raise self._failure(f"the broker did not start (exit code {code})")

    def stop(self, timeout: float = 10.0) -> None:
        """Stop it cleanly; data and port stay, so that it can be started again. Nothing happens when it is down.

        ``timeout`` is in seconds; after that it is killed.
        """
        with self._lock:
            remains = self._own()
            process = remains.process
            if process is not None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout)
                except subprocess.TimeoutExpired:
                    process.kill()
                remains.reap()

    def kill(self) -> None:
        """Kill it (SIGKILL), as a crash would; data and port stay. Nothing happens when it is down."""
        with self._lock:
            self._own().kill()

    def restart(self) -> Self:
        """Stop it cleanly and start it again, with the same data on the same port."""
        with self._lock:
            self.stop()
            return self.start()

    def close(self) -> None:
        """End it and remove what it leaves: process, temporary folder, port. A second call does nothing."""
        with self._lock:
            if self._remains is None:
                return
            if self._data_dir is not None and not self._remains.foreign:
                self.stop()
            self._remains.clear()
            if self._finalizer is not None:
                self._finalizer.detach()
            self._remains = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import asyncio  # takes as long as half a start, so only where it is there already

        # In a thread, that can't be interrupted: who is cancelled waits for its end, which is near.
        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            starting.exception()  # has been looked at: nobody else will
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    # ---- its topics

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        """Make a topic. When this returns, it can be written and read.

        Raises:
            EmbeddedBrokerError: the broker refuses it, or is down.
        """
        texts = {key: _text(value) for key, value in (configs or {}).items()}
        self._ask(lambda requests: requests.create_topic(name, partitions, texts))

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            TopicMissingError: there is none of that name.
            EmbeddedBrokerError: the broker is down.
        """
        self._ask(lambda requests: requests.delete_topic(name))

    def _ask(self, what: Callable[[Requests], None]) -> None:
        from ottla_broker.testing.requests import RefusedError, Requests

        try:
            with Requests(HOST, self.port) as requests:
                what(requests)
        except RefusedError as error:
            kind = TopicMissingError if error.missing else EmbeddedBrokerError
            raise kind(str(error)) from error
        except OSError as error:
            raise self._failure(f"the broker does not answer ({error})") from error

    # ---- parts

    def _own(self) -> _Remains:
        """What this process holds of the broker."""
        if self._remains is None:
            raise EmbeddedBrokerError("the broker is not started, or closed: use `with`, or start()")
        return self._remains

    def _failure(self, what: str) -> EmbeddedBrokerError:
        lines = self.log(LOG_LINES).strip()
        return EmbeddedBrokerError(f"{what}; its last lines:\n{lines}" if lines else what)

    def __repr__(self) -> str:
        state = "closed" if self._remains is None else "running" if self.running else "down"
        where = "" if self._remains is None else f" at {self.bootstrap_servers}"
        return f"<EmbeddedBroker {state}{where}>"


class _Remains:
    """What has to go at the end: the process, the folder, the port that is kept.

    A socket that is bound and doesn't listen keeps the port: the kernel gives it to nobody else meanwhile, neither to a
    listener that asks for any nor to an outgoing connection, and the broker may listen there all the same, as both
    sockets have ``SO_REUSEADDR``. So there is no moment at which somebody could take the port of a broker that starts,
    or that is down for a while.
    """

    def __init__(self, port: int) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.foreign = False
        self._reserved = socket.socket()
        try:
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind((HOST, port))
            self.port: int = self._reserved.getsockname()[1]
            self.folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        except OSError as error:
            self._reserved.close()
            raise EmbeddedBrokerError(f"no broker at {HOST}:{port}: {error}") from error
        _all.add(self)

    def reap(self) -> None:
        """Let go of a process that has ended, or is about to."""
        process, self.process = self.process, None
        if process is not None:
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.reap()

    def clear(self) -> None:
        """Have everything gone; in a process forked off the one that it belongs to, only what that would keep."""
        self._reserved.close()
        if not self.foreign:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def disown(self) -> None:
        """Be the copy in a forked process, which must not keep the port, nor the broker alive."""
        self.foreign = True
        self._reserved.close()
        process, self.process = self.process, None
        if process is not None:
            process.returncode = 0  # It is no child of this process: nothing to wait for.
            assert process.stdin is not None
            process.stdin.close()


_all: weakref.WeakSet[_Remains] = weakref.WeakSet()


def _disown_all() -> None:
    for remains in list(_all):
        remains.disown()


os.register_at_fork(after_in_child=_disown_all)


def _interpreter_options() -> list[str]:
    """Without ``site``, and without what the environment says to Python: the start takes a tenth less.

    The child is told ``sys.path``, so it finds the modules that this process has. Only a package installed as editable
    by an import hook needs ``site``, which installs the hook.
    """
    if any("__editable__" in getattr(finder, "__module__", "") for finder in sys.meta_path):
        return []
    options = ["-I", "-S"]
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return options


def _text(value: object) -> str:
    """As Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
