"""A broker without its network: store, logs, replicas, metadata and controller, in one data folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any

from tests.support.handlers import answered, request_context, services

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import log_config
from ottla_broker.controller.features import FeatureAdmin
from ottla_broker.controller.standalone import StandaloneController
from ottla_broker.log.manager import LogManager
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metadata.scram_credentials import ScramCredentials
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.requests.context import RequestContext
from ottla_broker.store.embedded import EmbeddedStore


class World:
    """Opened by :meth:`open`, and again after :meth:`close` or :meth:`crash`."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        self.config = BrokerConfig.from_properties({"log.dirs": str(folder), **settings})
        self.background = Background(2)
        self.clock = SystemClock(asyncio.get_running_loop())
        # Different each time, because topic ids come from it.
        self.random = Random(os.urandom(8))
        self.metadata = MetadataCache()
        self.logs = LogManager(
            self.config.data_dirs, log_config(self.config, {}), self.clock, self.background, self.random
        )
        self.replicas = ReplicaManager(ReplicaEnvironment(self.config.broker_id, self.logs, self.clock))

    @classmethod
    async def open(cls, folder: Path, **settings: str) -> World:
        """Start like the server. In ``settings``, write underscores for dots."""
        world = cls(folder, {name.replace("_", "."): value for name, value in settings.items()})
        await world.start()
        return world

    async def start(self) -> None:
        self.logs.lock()
        cluster_id, _ = self.logs.identity()
        self.store = EmbeddedStore.open(self.folder, self.background)
        self.controller = StandaloneController(
            self.config, self.store, self.metadata, self.replicas, self.logs, self.clock, self.random
        )
        await self.controller.load(cluster_id)
        self.features = FeatureAdmin(self.store, self.clock, alone=True)
        await self.features.load()
        self.logs.claim(self.metadata.cluster_id, self.config.broker_id)
        await self.logs.load(self.metadata.log_config)
        await self.controller.start()
        await self.controller.register(self.config.endpoints)

    async def close(self) -> None:
        """Stop cleanly."""
        await self.store.close()
        await self.logs.close()
        self.background.close()

    async def crash(self) -> None:
        """Stop like a killed process, without marker and checkpoints."""
        await self.store.close()
        for folder in self.logs.folders:
            folder.unlock()
        self.background.close()

    def context(self, version: int, api_key: int, listener: str = "PLAINTEXT") -> RequestContext:
        """Return the context of a request."""
        given = services(
            config=self.config,
            metadata=self.metadata,
            controller=self.controller,
            replicas=self.replicas,
            logs=self.logs,
            scram=ScramCredentials(self.store, notifies=False),
            is_controller=lambda: True,
            features=self.features,
        )
        return request_context(given, version, api_key, listener)

    async def call(self, handler: Any, request: Any, version: int, listener: str = "PLAINTEXT") -> Any:
        """Handle a request. Request and response are encoded and decoded."""
        asked = type(request).decode(request.encode(version), version)
        answer = await answered(handler, self.context(version, request.API_KEY, listener), asked)
        return type(answer).decode(answer.encode(version), version)
