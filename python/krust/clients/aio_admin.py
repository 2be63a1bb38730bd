"""`krust.AsyncAdmin`: the methods of `krust.Admin`, awaitable. Its own thread makes the calls."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from krust.clients.admin import Admin
from krust.clients.admin_transactions import HANGING_AFTER_MS
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from types import TracebackType

    from krust.clients.acls import Acl, AclFields
    from krust.clients.admin import Group
    from krust.clients.admin_transactions import (
        HangingTransaction,
        ProducerState,
        TransactionDescription,
        TransactionListing,
    )
    from krust.clients.consumer import TopicPartitionLike
    from krust.clients.keywords import CommonSettings
    from krust.coordinator.consumer_protocol import TopicPartition

    Returned = TypeVar("Returned")


class AsyncAdmin:
    """Requests to the cluster. Settings and errors: those of `krust.Admin`; `core` is one."""

    def __init__(
        self, config: Mapping[str, object] | None = None, /, **more: Unpack[CommonSettings]
    ) -> None:
        self.core = Admin(config, **more)
        self._thread = ThreadPoolExecutor(1, "krust-admin")
        self._closed = False

    async def request(
        self, api: str, body: dict[str, Any], version: int | None = None
    ) -> dict[str, Any]:
        """As `Admin.request`."""
        return await self._run(lambda: self.core.request(api, body, version))

    async def topics(self) -> dict[str, int]:
        """As `Admin.topics`."""
        return await self._run(self.core.topics)

    async def create_topic(
        self,
        topic: str,
        partitions: int = -1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """As `Admin.create_topic`."""
        create = self.core.create_topic
        await self._run(
            lambda: create(topic, partitions, replication_factor=replication_factor, config=config)
        )

    async def delete_topic(self, topic: str) -> None:
        """As `Admin.delete_topic`."""
        await self._run(lambda: self.core.delete_topic(topic))

    async def create_partitions(self, topic: str, total: int) -> None:
        """As `Admin.create_partitions`."""
        await self._run(lambda: self.core.create_partitions(topic, total))

    async def config(self, topic: str) -> dict[str, str | None]:
        """As `Admin.config`."""
        return await self._run(lambda: self.core.config(topic))

    async def alter_config(self, topic: str, changes: Mapping[str, object | None]) -> None:
        """As `Admin.alter_config`."""
        await self._run(lambda: self.core.alter_config(topic, changes))

    async def groups(self) -> dict[str, str]:
        """As `Admin.groups`."""
        return await self._run(self.core.groups)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, Group]:
        """As `Admin.describe_groups`."""
        return await self._run(lambda: self.core.describe_groups(group_ids))

    async def committed(
        self, group_id: str, topic: str, partitions: int
    ) -> dict[TopicPartition, int]:
        """As `Admin.committed`."""
        return await self._run(lambda: self.core.committed(group_id, topic, partitions))

    async def delete_group(self, group_id: str) -> None:
        """As `Admin.delete_group`."""
        await self._run(lambda: self.core.delete_group(group_id))

    async def list_offsets(
        self,
        moments: Mapping[TopicPartitionLike, int | datetime | str],
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, int | None]:
        """As `Admin.list_offsets`."""
        return await self._run(
            lambda: self.core.list_offsets(moments, isolation_level=isolation_level)
        )

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """As `Admin.delete_records`."""
        return await self._run(lambda: self.core.delete_records(topic, partition, offset))

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """As `Admin.list_transactions`."""
        call = self.core.list_transactions
        return await self._run(
            lambda: call(
                states=states, producer_ids=producer_ids, open_longer_than_ms=open_longer_than_ms
            )
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """As `Admin.describe_transactions`."""
        return await self._run(lambda: self.core.describe_transactions(transactional_ids))

    async def describe_producers(
        self, partitions: Iterable[TopicPartitionLike], broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerState]]:
        """As `Admin.describe_producers`."""
        return await self._run(lambda: self.core.describe_producers(partitions, broker))

    async def find_hanging_transactions(
        self,
        topics: Iterable[str] | None = None,
        *,
        broker: int | None = None,
        older_than_ms: int = HANGING_AFTER_MS,
    ) -> list[HangingTransaction]:
        """As `Admin.find_hanging_transactions`."""
        find = self.core.find_hanging_transactions
        return await self._run(lambda: find(topics, broker=broker, older_than_ms=older_than_ms))

    async def abort_transaction(
        self,
        topic: str,
        partition: int,
        start_offset: int | None = None,
        *,
        producer: ProducerState | None = None,
    ) -> None:
        """As `Admin.abort_transaction`."""
        abort = self.core.abort_transaction
        await self._run(lambda: abort(topic, partition, start_offset, producer=producer))

    async def describe_acls(self, **fields: Unpack[AclFields]) -> list[Acl]:
        """As `Admin.describe_acls`."""
        return await self._run(lambda: self.core.describe_acls(**fields))

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """As `Admin.create_acls`."""
        await self._run(lambda: self.core.create_acls(acls))

    async def delete_acls(self, **fields: Unpack[AclFields]) -> list[Acl]:
        """As `Admin.delete_acls`."""
        return await self._run(lambda: self.core.delete_acls(**fields))

    async def close(self) -> None:
        """End the connections, and the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.core.close)
        finally:
            self._thread.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[[], Returned]) -> Returned:
        if self._closed:
            raise ConfigError("this client is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
