"""Admin's calls for features, and ``ottla features``; tests/cluster/test_transaction_version_2.py has a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.ottla_command import Ottla
from tests.cli.test_completion import complete
from tests.client.base.fake import FakeBroker

from ottla_broker.testing import EmbeddedBroker
from ottla_client import Admin as AsyncAdmin
from ottla_client.admin import FeatureMetadata, FeatureUpdate, PartialError, UpgradeType, VersionRange
from ottla_client.errors import BrokerError
from ottla_client.sync import Admin
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.update_features import UpdateFeaturesResponse

NAME = "transaction.version"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def ottla(bootstrap: str) -> Ottla:
    return Ottla(bootstrap)


def shown(ottla: Ottla) -> list[str]:
    (row,) = ottla.rows("features", "describe")
    return row


def test_describe_upgrade_and_downgrade(ottla: Ottla) -> None:
    *described, epoch, brokers = shown(ottla)
    assert described == [NAME, "0", "2", "2"]
    refused = ottla.fails("features", "upgrade", "--feature", f"{NAME}=2")
    assert "from existing versionLevel:2 to the same value. (INVALID_REQUEST)" in refused
    dry = ottla.run("features", "downgrade", "--feature", f"{NAME}=0", "--dry-run")
    assert (dry.exit_code, dry.stdout, dry.stderr) == (
        0,
        "",
        "the cluster accepts this; nothing was changed\n",
    )
    dry_run = ["features", "downgrade", "--feature", f"{NAME}=0", "--dry-run"]
    assert ottla.json(*dry_run) == {"accepted": {NAME: 0}}
    assert "named twice" in ottla.fails(*dry_run, "--feature", f"{NAME}=1", code=2)
    assert shown(ottla) == [NAME, "0", "2", "2", epoch, brokers]

    assert ottla("features", "downgrade", "--feature", f"{NAME}=0") == f"finalized {NAME} at 0\n"
    assert shown(ottla) == [NAME, "0", "2", "0", str(int(epoch) + 1), brokers]
    refused = ottla.fails("features", "upgrade", "--feature", f"{NAME}=3")
    assert refused == f"Error: {NAME} can't be finalized at 3: broker {brokers} can't work at this level\n"
    assert ottla.json("features", "upgrade", "--feature", f"{NAME}=2") == {"finalized": {NAME: 2}}
    assert shown(ottla)[3] == "2"


def test_completion(bootstrap: str) -> None:
    assert complete(bootstrap, "features", "upgrade", "--feature", "transaction") == [f"{NAME}="]


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        ("transaction.versoin=2", 1, f"did you mean {NAME}?"),
        ("transaction.version", 2, "is not KEY=VALUE"),
        ("transaction.version=two", 2, "with a level such as 2"),
        ("transaction.version=40000", 2, "with a level such as 2"),
    ],
)
def test_wrong_arguments(ottla: Ottla, given: str, code: int, why: str) -> None:
    assert why in " ".join(ottla.fails("features", "upgrade", "--feature", given, code=code).split())


def test_admin(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        (found,) = admin.describe_features().values()
        assert found == FeatureMetadata(found.epoch, {NAME: 2}, {NAME: VersionRange(0, 2)})
        with pytest.raises(PartialError) as failed:
            admin.update_features(
                {"no.such": FeatureUpdate(1), NAME: FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)},
                validate_only=True,
            )
        assert set(failed.value.errors) == {"no.such"}
        assert set(failed.value.results) == {NAME}


async def test_old_brokers_take_a_flag_and_may_refuse_everything() -> None:
    refusal = UpdateFeaturesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None)
    async with FakeBroker() as broker:
        broker.versions[ApiKey.UPDATE_FEATURES] = (0, 0)
        broker.answers[ApiKey.UPDATE_FEATURES] = lambda header, request: refusal
        async with AsyncAdmin(broker.bootstrap) as admin:
            with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await admin.update_features({NAME: FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)})
        (update,) = broker.requests[-1].feature_updates
        assert (update.max_version_level, update.allow_downgrade) == (0, True)
