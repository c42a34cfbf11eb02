"""`/metrics`: what the engine counts about itself, and what the server saw of each request."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from reference_engine.batch import Stage
from reference_engine.clock import NS_PER_S
from reference_engine.engine import Engine
from reference_engine.server.ledger import Entry, Outcome, stage_times

__all__ = ["Metrics"]

_PREFIX = "earwitness_engine"
_TIME_BUCKETS_S = (
    0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip
_SLACK_BUCKETS_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class _EngineCollector:
    """Reads the engine's own counters when somebody looks; keeps nothing itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterator[Metric]:
        """Nothing in advance: names are fixed by `collect`."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Gauges of now and counters since the start."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._stages()

    def _gauges(self) -> Iterator[Metric]:
        engine = self._engine
        num_active, num_waiting = engine.admission.num_active, len(engine.admission.queue)
        slack_ns = engine.router.min_slack_ns
        yield _gauge("slots_active", "Requests that hold a slot.", num_active)
        yield _gauge("queue_length", "Requests that wait for a slot.", num_waiting)
        yield _gauge("slots", "Slots of the profile.", engine.profile.slots)
        yield _gauge("places", "Streams that can be kept fed at present.", engine.load.num_places)
        yield _gauge("positions_held", "Positions promised.", engine.admission.positions_held)
        if slack_ns is not None:
            value = slack_ns / NS_PER_S
            yield _gauge("min_slack_seconds", "Narrowest slack of any chunk so far.", value)

    def _counters(self) -> Iterator[Metric]:
        engine, meters = self._engine, self._engine.meters
        counts = {
            "requests_submitted": ("Requests that the engine took.", meters.num_submitted),
            "requests_refused": ("Requests refused for want of room.", meters.num_refused),
            "cohorts_split": ("Batches larger than any captured shape.", meters.num_split),
            "rescues": ("Steps for somebody about to run dry.", meters.num_rescues),
            "step_faults": ("Steps that failed.", meters.num_step_faults),
            "loop_faults": ("Scheduling turns that failed.", meters.num_loop_faults),
            "delivery_deaths": ("Delivery threads replaced.", meters.num_delivery_deaths),
            "chunks_routed": ("Chunks with sound.", engine.router.num_chunks),
            "underruns": ("Chunks after their listener ran dry.", engine.router.num_underruns),
        }
        for name, (text, value) in counts.items():
            yield CounterMetricFamily(f"{_PREFIX}_{name}", text, value=float(value))
        ends = CounterMetricFamily(
            f"{_PREFIX}_requests_ended", "How they ended.", labels=["reason"]
        )
        for reason, value in meters.ends.items():
            ends.add_metric([reason.value], value)
        yield ends

    def _stages(self) -> Iterator[Metric]:
        named = {
            "stage_steps": "Steps of a stage.",
            "stage_rows": "Their real rows: divided by the steps, the mean batch size.",
            "stage_padded_rows": "Their rows with padding.",
            "stage_busy_seconds": "Time they took.",
        }
        families = {
            name: CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=["stage"])
            for name, text in named.items()
        }
        for stage in Stage:
            meter, label = self._engine.meters.stage(stage), [stage.name.lower()]
            families["stage_steps"].add_metric(label, meter.num_steps)
            families["stage_rows"].add_metric(label, meter.num_rows)
            families["stage_padded_rows"].add_metric(label, meter.num_padded_rows)
            families["stage_busy_seconds"].add_metric(label, meter.busy_ns / NS_PER_S)
        yield from families.values()


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=float(value))


class Metrics:
    """One server's registry; nothing global."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "earwitness_server_requests", "Requests by how they ended.", ["transport", "outcome"],
            registry=self._registry,
        )  # fmt: skip
        self._stages = Histogram(
            "earwitness_server_first_sound_seconds",
            "The way to the first sound by stage; first_pcm is all of it.",
            ["transport", "stage"], buckets=_TIME_BUCKETS_S, registry=self._registry,
        )  # fmt: skip
        self._slack = Histogram(
            "earwitness_server_min_slack_seconds", "Narrowest slack of a request's chunks.",
            ["transport"], buckets=_SLACK_BUCKETS_S, registry=self._registry,
        )  # fmt: skip

    def watch(self, engine: Engine) -> None:
        """Show this engine's own counters as well."""
        self._registry.register(_EngineCollector(engine))

    def count(self, entry: Entry) -> None:
        """A request is over."""
        transport = entry.transport.value
        self._requests.labels(transport, entry.outcome.value).inc()
        if entry.stats is None or entry.outcome is Outcome.REFUSED:
            return
        for stage, value_ms in stage_times(entry):
            self._stages.labels(transport, stage).observe(value_ms / 1000)
        slack_ns = entry.stats.min_slack_ns
        if slack_ns is not None:
            self._slack.labels(transport).observe(slack_ns / NS_PER_S)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)
