"""Admin without asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ..admin import Admin as AsyncAdmin
from ..admin.base import AdminOptions, AdminSettings
from ..settings import DEFAULT_BOOTSTRAP, accepts
from .sync_client import SyncClient, blocking


class Admin(SyncClient[AsyncAdmin]):
    """``ottla_client.Admin`` for code without asyncio::

        with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            admin.create_topics([NewTopic("orders", partitions=6)])

    Several threads may use it at once.
    """

    @accepts(AdminSettings)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[AdminOptions],
    ) -> None:
        """Takes the options of the async class."""
        super().__init__(AsyncAdmin(bootstrap_servers, **options))

    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_topics = blocking(AsyncAdmin.create_topics)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    delete_records = blocking(AsyncAdmin.delete_records)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    list_client_metrics = blocking(AsyncAdmin.list_client_metrics)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    remove_members = blocking(AsyncAdmin.remove_members)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    list_zookeeper_offsets = blocking(AsyncAdmin.list_zookeeper_offsets)
    alter_zookeeper_offsets = blocking(AsyncAdmin.alter_zookeeper_offsets)
    group_lag = blocking(AsyncAdmin.group_lag)
    lag_of = blocking(AsyncAdmin.lag_of)
    share_group_offsets = blocking(AsyncAdmin.share_group_offsets)
    alter_share_group_offsets = blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AsyncAdmin.delete_share_group_offsets)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    timestamps_of = blocking(AsyncAdmin.timestamps_of)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    find_hanging_transactions = blocking(AsyncAdmin.find_hanging_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    fence_producers = blocking(AsyncAdmin.fence_producers)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_apis = blocking(AsyncAdmin.describe_apis)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    describe_features = blocking(AsyncAdmin.describe_features)
    update_features = blocking(AsyncAdmin.update_features)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    create_delegation_token = blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = blocking(AsyncAdmin.describe_delegation_tokens)
    list_passwords = blocking(AsyncAdmin.list_passwords)
    set_password = blocking(AsyncAdmin.set_password)
    delete_password = blocking(AsyncAdmin.delete_password)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
