"""The end of each log's compacted part: ``cleaner-offset-checkpoint`` in every data folder.

The format is that of Kafka's offset checkpoints. Losing the file costs only the time to clean again. Owned by the loop
thread; the file is written on a background thread from bytes that the loop thread made.
"""

from __future__ import annotations

import os.path

from ottla_broker.background import Background
from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.checkpoints import decode_offsets, encode_offsets
from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.log import NOT_TRUNCATED, Log

_log = get_logger()


class CleanerCheckpoints:
    """The first dirty offset of each log, by data folder."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # The offsets of each data folder's file, read when first needed.
        self._offsets: dict[str, dict[tuple[str, int], int]] = {}
        # The topic id of each offset: a topic that was deleted and created again has another id.
        self._owners: dict[tuple[str, int], bytes] = {}

    def get(self, log: Log) -> int | None:
        """The log's first dirty offset; None when it was never cleaned."""
        key = (log.topic, log.partition)
        offsets = self._of_folder(os.path.dirname(log.path))
        if self._owners.setdefault(key, log.topic_id) != log.topic_id:
            self._owners[key] = log.topic_id
            offsets.pop(key, None)
        if log.lowest_truncation < NOT_TRUNCATED:
            # The clean records above are gone, and others may have taken their place.
            if key in offsets:
                offsets[key] = min(offsets[key], log.lowest_truncation)
            log.lowest_truncation = NOT_TRUNCATED
        return offsets.get(key)

    def advance(self, log: Log, offset: int) -> None:
        """Record that the log is clean below ``offset``; :meth:`write` makes that last."""
        key = (log.topic, log.partition)
        self._of_folder(os.path.dirname(log.path))[key] = offset
        self._owners[key] = log.topic_id

    def move(self, old: Log, new: Log) -> None:
        """Record for a log that has moved to another data folder what is known of the one in the old folder."""
        key = (new.topic, new.partition)
        offset = self._of_folder(os.path.dirname(old.path)).pop(key, None)
        offsets = self._of_folder(os.path.dirname(new.path))
        if offset is None:
            offsets.pop(key, None)
        else:
            offsets[key] = offset

    def keep_only(self, keys: set[tuple[str, int]]) -> None:
        """Forget all logs but ``keys``."""
        for offsets in self._offsets.values():
            for key in offsets.keys() - keys:
                del offsets[key]
        for key in self._owners.keys() - keys:
            del self._owners[key]

    async def write(self, log: Log, background: Background) -> None:
        """Write the file of the log's data folder. A failure is logged: the next cleaning writes it again."""
        folder = os.path.dirname(log.path)
        path = f"{folder}/{names.CLEANER_OFFSETS}"
        data = encode_offsets(sorted(self._of_folder(folder).items()))
        try:
            await background.run(self._files.replace, path, data)
        except OSError as error:
            _log.warning("the cleaner's checkpoint could not be written", file=path, why=str(error))

    def _of_folder(self, folder: str) -> dict[tuple[str, int], int]:
        offsets = self._offsets.get(folder)
        if offsets is None:
            offsets = self._offsets[folder] = self._read(f"{folder}/{names.CLEANER_OFFSETS}")
        return offsets

    def _read(self, path: str) -> dict[tuple[str, int], int]:
        try:
            return decode_offsets(self._files.read_all(path), path)
        except FileNotFoundError:
            return {}
        except (CorruptFileError, OSError) as error:
            _log.warning(
                "the cleaner's checkpoint cannot be read, logs are cleaned from their start", why=str(error)
            )
            return {}
