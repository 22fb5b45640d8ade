"""A broker in its own process, for the duration of a block of code."""

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
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from ottla_broker.ephemeral import FOLDER_PREFIX, HOST
from ottla_broker.testing.child import READY, Spec

if TYPE_CHECKING:
    from ottla_broker.testing.requests import Requests

LOG_LINES: Final = 30
_KEPT_LOG: Final = 1024 * 1024
"""Last lines of the broker's log that an error shows."""

_PROGRAM = """import json, sys
spec = json.loads(sys.argv[1])
sys.path[:] = spec["path"]
from ottla_broker.testing.child import main
main(spec)
"""


class EmbeddedBrokerError(Exception):
    """The broker did not start, has ended, or refused a request; the message has its last lines."""


class TopicMissingError(EmbeddedBrokerError):
    """No topic has that name."""


class EmbeddedBroker:
    """A real broker with its own process, port and temporary folder.

    ::

        with EmbeddedBroker(topics={"orders": 3}) as broker:
            Producer(bootstrap_servers=broker.bootstrap_servers)

    ``async with`` does the same without blocking the event loop. Without ``with``, call :meth:`start`, and
    :meth:`close` at the end. You can use it from any thread.

    This object owns its port until it is closed, so a killed broker restarts on the same one. When this process ends,
    even by SIGKILL, the broker ends too and its folder is removed.

    Args:
        settings: configuration keys by their Kafka names. They override the settings for tests
            (``ottla_broker.ephemeral.SETTINGS``), which override Kafka's defaults.
        topics: partitions by name of topics to create before the broker is ready.
        port: the port to listen on, at 127.0.0.1; 0 means any free port.
        data_dir: keep the data in this folder, durably. By default the broker uses a temporary folder without fsync.
        log: level of the broker's log. Events below ``warning`` in its first second are written at its end.
        start_timeout: the longest start, in seconds.
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
        self._resources: _Resources | None = None
        self._last_log = ""
        self._finalizer: weakref.finalize[[_Resources], EmbeddedBroker] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client. It stays the same while the broker is down."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The broker's port."""
        return self._own().port

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            EmbeddedBrokerError: the broker is down.
        """
        process = self._own().process
        if process is None:
            raise EmbeddedBrokerError("the broker is not running: start() it")
        return process.pid

    @property
    def running(self) -> bool:
        """Whether the broker's process is running."""
        resources = self._resources
        return resources is not None and resources.process is not None and resources.process.poll() is None

    @property
    def data_dir(self) -> Path:
        """The data folder (``log.dirs``)."""
        return self._data_dir or self._own().folder / "data"

    def log(self, lines: int | None = None) -> str:
        """Return the broker's log since the first start, or its last ``lines``; also after :meth:`close`."""
        text = self._last_log
        if self._resources is not None:
            with suppress(FileNotFoundError):
                text = self._log_file.read_text(errors="replace")
        return text if lines is None else "\n".join(text.splitlines()[-lines:])

    @property
    def _log_file(self) -> Path:
        return self._own().folder / "broker.log"

    def start(self) -> Self:
        """Start the broker, unless it runs, and wait until it accepts clients.

        After :meth:`stop` or :meth:`kill` it has the same data and port.

        Raises:
            EmbeddedBrokerError: it doesn't start; the message has its last lines.
        """
        with self._lock:
            if self.running:
                return self
            if self._resources is None:
                self._resources = _Resources(self._wanted_port)
                self._finalizer = weakref.finalize(self, _Resources.clear, self._resources)
            resources = self._own()
            resources.reap()
            try:
                self._spawn(resources)
                self._await_ready(resources)
            except BaseException:
                resources.kill()
                raise
            return self

    def _spawn(self, resources: _Resources) -> None:
        # This object decides these two, whatever the settings say.
        own = {"listeners": f"PLAINTEXT://{HOST}:{resources.port}", "log.dirs": str(self.data_dir)}
        spec: Spec = {
            "path": [os.path.abspath(folder) for folder in sys.path],
            "settings": {**self._settings, **own},
            "topics": self._topics,
            "log_level": self._log_level,
            "durable": self._data_dir is not None,
            "remove": str(resources.folder),
        }
        with self._log_file.open("ab") as log:
            resources.process = subprocess.Popen(
                [sys.executable, *_interpreter_options(), "-c", _PROGRAM, json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=resources.folder,
                # Ctrl-C on a terminal must reach only the test runner, which needs the broker for its cleanup.
                process_group=0,
            )

    def _await_ready(self, resources: _Resources) -> None:
        process = resources.process
        assert process is not None
        assert process.stdout is not None
        with process.stdout as output:
            deadline = time.monotonic() + self._start_timeout
            poll = select.poll()
            poll.register(output, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise self._failure(f"the broker was not ready within {self._start_timeout:g} s")
            if output.readline() != READY:
                code = process.wait()
                raise self._failure(f"the broker did not start (exit code {code})")

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the broker cleanly, if it runs, and kill it after ``timeout`` seconds. You can start it again."""
        with self._lock:
            resources = self._own()
            process = resources.process
            if process is not None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout)
                except subprocess.TimeoutExpired:
                    process.kill()
                resources.reap()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, if it runs. You can start it again."""
        with self._lock:
            self._own().kill()

    def restart(self) -> Self:
        """Stop the broker cleanly and start it again."""
        with self._lock:
            self.stop()
            return self.start()

    def close(self) -> None:
        """End the broker, remove its temporary folder and release its port. A second call does nothing."""
        with self._lock:
            if self._resources is None:
                return
            if self._data_dir is not None and not self._resources.foreign:
                self.stop()
            self._last_log = self.log()[-_KEPT_LOG:]
            self._resources.clear()
            if self._finalizer is not None:
                self._finalizer.detach()
            self._resources = None

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
        import asyncio  # takes half as long as a start

        # A thread can't be interrupted, so a cancelled call waits for its end.
        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            starting.exception()  # mark it as retrieved
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic, which is ready for clients when this returns.

        Raises:
            EmbeddedBrokerError: the broker refuses, or is down.
        """
        texts = {key: _text(value) for key, value in (configs or {}).items()}
        self._ask(lambda requests: requests.create_topic(name, partitions, texts))

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            TopicMissingError: no topic has that name.
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

    def _own(self) -> _Resources:
        """Return the broker's resources in this process."""
        if self._resources is None:
            raise EmbeddedBrokerError("the broker is not started, or is closed: use `with` or start()")
        return self._resources

    def _failure(self, what: str) -> EmbeddedBrokerError:
        lines = self.log(LOG_LINES).strip()
        return EmbeddedBrokerError(f"{what}; its last lines:\n{lines}" if lines else what)

    def __repr__(self) -> str:
        state = "closed" if self._resources is None else "running" if self.running else "down"
        where = "" if self._resources is None else f" at {self.bootstrap_servers}"
        return f"<EmbeddedBroker {state}{where}>"


class _Resources:
    """The resources to release at the end: process, folder and port.

    A bound socket that doesn't listen reserves the port: the kernel gives it to no other listener or connection. The
    broker can listen on it because both sockets have ``SO_REUSEADDR``. So no other program can take the port while the
    broker starts or is down.
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
        """Wait for a process that has ended or is about to."""
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
        """Release everything; in a forked process, only its copies."""
        self._reserved.close()
        if not self.foreign:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def disown(self) -> None:
        """Release the copies in a forked process, which must keep neither the port nor the broker alive."""
        self.foreign = True
        self._reserved.close()
        process, self.process = self.process, None
        if process is not None:
            process.returncode = 0  # It isn't this process's child, so there is nothing to wait for.
            assert process.stdin is not None
            process.stdin.close()


_all: weakref.WeakSet[_Resources] = weakref.WeakSet()


def _disown_all() -> None:
    for resources in list(_all):
        resources.disown()


os.register_at_fork(after_in_child=_disown_all)


def _interpreter_options() -> list[str]:
    """Return options that skip ``site`` and Python's environment variables, which saves a tenth of the start.

    The child gets ``sys.path`` from this process. Only a package installed as editable through an import hook needs
    ``site``, which installs the hook.
    """
    if any("__editable__" in getattr(finder, "__module__", "") for finder in sys.meta_path):
        return []
    options = ["-I", "-S"]
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return options


def _text(value: object) -> str:
    """Write a value as Kafka does."""
    return str(value).lower() if isinstance(value, bool) else str(value)
