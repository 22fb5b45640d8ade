"""The collector of the metrics that clients have pushed (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla_broker.metrics.exposition import Exposition
from ottla_protocol.prometheus import escape

if TYPE_CHECKING:
    from ottla_broker.metrics.sources import Sources

_A_STEP: Final = 100
_PREFIX: Final = "org_apache_kafka_"


class ClientCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self, out: Exposition) -> Iterator[None]:
        """Collect what clients have pushed, and how their requests fared."""
        telemetry = self._sources.telemetry
        if telemetry is None:
            return
        instances = list(telemetry.instances())
        kafka = "kafka_server_client_metrics_"
        out.gauge(f"{kafka}instance_count", "Clients that ask which metrics to push, or push them.").add(
            len(instances)
        )
        for name, count, meaning in (
            ("plugin_export_total", telemetry.pushes, "Pushes of metrics that were taken."),
            ("plugin_error_total", telemetry.refused, "Pushes that were refused: invalid or too large."),
            ("throttle_total", telemetry.throttled, "Requests that came before their interval was over."),
            (
                "unknown_subscription_request_total",
                telemetry.unknown_subscriptions,
                "Pushes for a subscription that has changed meanwhile.",
            ),
        ):
            out.counter(f"{kafka}{name}", meaning).add(count)
        out.gauge("ottla_client_metrics_series", "Series that clients have pushed.").add(telemetry.series)
        out.counter(
            "ottla_client_metrics_dropped_total", "Series of clients left out because of a bound."
        ).add(telemetry.dropped_series)
        done = 0
        for instance_id, instance in instances:
            about = instance.about
            common = (
                f'client_id="{escape(about.client_id)}",client_instance_id="{escape(instance_id)}",'
                f'software="{escape(" ".join(about.software).strip())}"'
            )
            for series, value in list(instance.values.items()):
                done += 1
                if done % _A_STEP == 0:
                    yield
                if not out.room(1):
                    continue
                # Names of Ottla's own metrics aren't for clients to write.
                name = series.name if series.name.startswith(_PREFIX) else f"client_{series.name}"
                is_counter = series.name in instance.counters
                meaning = "Pushed by clients (KIP-714)."
                family = out.counter(name, meaning) if is_counter else out.gauge(name, meaning)
                labels = "".join(f',{label}="{escape(text)}"' for label, text in series.labels)
                family.add(value, f"{{{common}{labels}}}")
        yield
