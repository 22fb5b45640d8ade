"""No record acknowledged with acks=all is lost under any fault; clients record what they are promised and read."""

from __future__ import annotations

from pathlib import Path

from tests.faults.campaign import compare_replicas, run, topics
from tests.faults.checker import check, resent, summary
from tests.faults.cluster import FaultCluster
from tests.faults.conftest import Plan
from tests.faults.network import Network


def test_no_acknowledged_record_is_lost(tmp_path: Path, plan: Plan) -> None:
    timeline = [f"OTTLA_FAULT_SEED={plan.seed}, {plan.seconds:g} s"]
    print(timeline[0], flush=True)
    trouble = "it was not over"
    try:
        with Network() as network:
            cluster = FaultCluster(tmp_path, network, topics(plan))
            try:
                history = run(cluster, plan, timeline)
                differing = compare_replicas(cluster, history)
            except Exception as error:
                trouble = f"{type(error).__name__}: {error}"
                raise AssertionError(f"{trouble}\n{report(timeline)}\nlogs: {tmp_path}") from error
            finally:
                cluster.close()
        if history.bumped:
            resends = f"{resent(history)} records resent in a new epoch by {sorted(history.bumped)}"
            timeline[-1] += f"\n{resends}"
        found = summary(check(history))
        complaints = [line for member in cluster.members.values() for line in member.complaints()]
        trouble = "\n".join(filter(None, [found, *differing, *complaints[:10]]))
        assert not trouble, f"{trouble}\n{report(timeline)}\nlogs: {tmp_path}"
    finally:
        leave(plan, timeline, trouble)
    print(timeline[-1], flush=True)


def report(timeline: list[str]) -> str:
    return "\n".join(timeline)


def leave(plan: Plan, timeline: list[str], trouble: str) -> None:
    """The summary of a long run."""
    if plan.summary is not None:
        plan.summary.parent.mkdir(parents=True, exist_ok=True)
        plan.summary.write_text(f"{report(timeline)}\n{trouble or 'nothing is wrong'}\n")
        print(f"the summary is in {plan.summary}", flush=True)
