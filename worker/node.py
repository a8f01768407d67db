"""One node: engines, stores, watchers and Celery's consumer, built once, started together and stopped in order."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Sequence
from typing import Any

import redis
from celery import signals as celery_signals
from celery.exceptions import Reject
from celery.worker import state as celery_state

from engine import DiffusionEngine
from tasks.abort_feed import AbortFeed
from tasks.app import GENERATE, make_app, queue_for
from tasks.artifacts import ArtifactStore
from tasks.errors import ConfigError, StoreUnavailable
from tasks.hints import Hinter
from tasks.ids import is_job_id
from tasks.inputs import InputLoader
from tasks.model_room import MIB
from tasks.models import ModelSpec, load_models
from tasks.quotas import load_quotas
from tasks.redaction import Redactor, secrets_of
from tasks.redis_address import parse_address
from tasks.redis_rights import worker_samples
from tasks.redis_start import check_start
from tasks.redis_store import RedisJobStore, connect
from tasks.settings import Settings
from tasks.submit_task import register_submit
from tasks.tracing import NO_TRACING, Tracing
from tasks.webhook_queue import WebhookQueue
from tasks.webhooks import WebhookSender
from worker.aborts import AbortWatcher
from worker.announce import BEAT_INTERVAL_S, Announcer, serve_metrics
from worker.attempt import Attempts
from worker.capacity import engine_config, num_places, num_slots, served
from worker.checkpoints import Checkpoints
from worker.consumer import CarefulConsumer
from worker.drain import Drain
from worker.figures import NodeFigures
from worker.gate import Gate
from worker.generate import Generate
from worker.lease import LeaseKeeper
from worker.model_shelf import ModelShelf
from worker.neighbours import look_around
from worker.periodic import Periodic
from worker.places import MODEL_WAITS, PATIENCE_S, PLACES_TAKEN, Places, keep_quiet
from worker.pool import current_delivery, delivery_pool
from worker.progress import ProgressWriter
from worker.remote import answer_shutdown
from worker.rescue import Rescuer
from worker.salvage import INTERVAL_S as SALVAGE_S
from worker.salvage import Salvager
from worker.shelf_policy import ShelfPolicy
from worker.spool import Spool, spool_folder, system_of
from worker.sweeper import INTERVAL_S as SWEEP_S
from worker.sweeper import Sweeper
from worker.uploads import MAX_PUTS, Uploader

log = logging.getLogger(__name__)

#: Lost attempts are to be queued again within 5 s of their lease's end.
_RESCUE_INTERVAL_S = 1.5
_RESTART_PAUSE_S = 1.0
#: Of Celery's events, which monitors believe for twice as long; our own beats tell more, and more often.
_HEARTBEAT_S = 10.0
#: After the grace period: time to write down that the rest is given back.
_SETTLE_S = 5.0


class Node:
    """Raises `StoreUnavailable`, `ConfigError` or the engine's load error from `run`, before any job is taken."""

    def __init__(self, settings: Settings, model_names: Sequence[str] = (), tracing: Tracing = NO_TRACING) -> None:
        self._settings = settings
        self._tracing = tracing
        self._models = load_models(settings.models)
        self._specs = served(self._models, model_names)
        self._quotas = load_quotas(settings.tenants)
        self._model_of = {queue_for(spec.name): spec.name for spec in self._specs}
        #: One incarnation: a restarted process is another owner.
        self.name = f"{settings.worker_name}:{os.getpid()}:{secrets.token_hex(3)}"
        self._submit_queues = settings.submit_queue_names
        self._attempts = Attempts()
        self._drain = Drain(self._attempts, settings.drain_grace_s)
        self._places = Places(num_places(self._specs, settings.look_ahead_rows))
        self._figures = NodeFigures()
        self._shelf = ModelShelf(
            self._specs,
            lambda spec: _load(spec, settings.stall_s),
            bound_bytes=None if settings.model_memory_mb is None else settings.model_memory_mb * MIB,
            policy=ShelfPolicy(turn_s=settings.model_turn_s),
        )
        self._announcer = Announcer(
            self.name,
            settings.worker_name,
            [spec.name for spec in self._specs],
            self._shelf,
            self._attempts,
            self._figures,
            lambda: self._drain.draining,
            self._leave_on_request,
            self._shelf,
        )

    def run(self) -> int:
        """Serve until a signal; the exit code."""
        settings = self._settings
        client = connect(settings)
        store = RedisJobStore(
            client,
            settings.key_prefix,
            result_ttl_s=settings.result_ttl_s,
            max_queued=settings.max_queued,
            dead_letter_ttl_s=settings.dead_letter_ttl_s,
            quotas=self._quotas,
        )
        places = num_places(self._specs, settings.look_ahead_rows)
        artifacts = ArtifactStore(settings, num_connections=MAX_PUTS + places)
        database = parse_address(settings.redis_url).db
        names = [spec.name for spec in self._specs]
        for warning in check_start(client, worker_samples(settings.key_prefix, names, self._submit_queues, database)):
            log.warning("%s", warning)
        artifacts.ensure_bucket()
        with contextlib.ExitStack() as stack:
            if settings.metrics_port is not None:
                stack.callback(serve_metrics(settings.metrics_port, self._announcer))
            beats = Periodic("beat", lambda: self._announcer.beat(store), BEAT_INTERVAL_S)
            stack.callback(beats.stop)
            self._announcer.beat(store)
            beats.start()
            stack.callback(self._shelf.close)
            self._shelf.fill()
            hinter = Hinter(settings)
            progress = ProgressWriter(store)
            checkpoints = Checkpoints(artifacts, settings.s3_prefix)
            spool = Spool(spool_folder(settings), settings.spool_max_bytes, system_of(settings))
            uploader = Uploader(
                artifacts,
                settings.s3_prefix,
                settings.upload_patience_s,
                figures=self._figures,
                spool=spool,
                max_waiting=settings.spool_max_jobs,
            )
            self._places.are_closed = lambda: uploader.backlog.is_full
            generate = Generate(
                store=store,
                engines=self._shelf,
                shelf=self._shelf,
                hinter=hinter,
                inputs=InputLoader(settings, artifacts),
                uploader=uploader,
                checkpoints=checkpoints,
                attempts=self._attempts,
                progress=progress,
                gate=Gate(),
                worker=self.name,
                lease_s=settings.lease_s,
                max_attempts=settings.max_attempts,
                stall_s=settings.stall_s,
                draining=lambda: self._drain.draining,
                on_broken=self._on_broken,
                tracing=self._tracing,
                figures=self._figures,
                redact=Redactor(secrets_of(settings, os.environ)),
            )
            sweeper = Sweeper(store, checkpoints.delete)
            salvager = Salvager(store, spool, self._attempts, generate.bring_home, lambda: self._may_take(uploader))
            salvage = Periodic("salvager", salvager.tick, SALVAGE_S, jitter=0.5)
            feed = AbortFeed(connect(settings, protocol=2), settings.key_prefix)
            feed.start()
            stack.callback(feed.stop)
            for actor in (*self._actors(store, hinter, generate, progress, sweeper, feed), salvage):
                actor.start()
                stack.callback(actor.stop)
            webhooks = WebhookSender(_webhook_queue(client, settings), store.get, settings)
            webhooks.start()
            stack.callback(webhooks.stop)
            self._announcer.beat(store)
            self._consume(store, hinter, generate)
            self._announcer.beat(store)
        with contextlib.suppress(StoreUnavailable):  # its last beat runs out by itself
            store.leave(self.name)
        return 1 if self._drain.broken else 0

    def _actors(
        self,
        store: RedisJobStore,
        hinter: Hinter,
        generate: Generate,
        progress: ProgressWriter,
        sweeper: Sweeper,
        feed: AbortFeed,
    ) -> tuple[Periodic, ...]:
        settings = self._settings
        keeper = LeaseKeeper(store, self._attempts, settings.lease_s)
        rescuer = Rescuer(store, hinter, settings.max_attempts, keeper.has_kept_for_a_lease)
        watcher = AbortWatcher(store, self._attempts, feed)

        def tell() -> None:
            generate.tell()
            progress.tick()

        return (
            Periodic("lease-keeper", keeper.tick, keeper.interval_s),
            Periodic("abort-watcher", watcher.tick, settings.abort_poll_s),
            Periodic("progress", tell, settings.progress_interval_s),
            Periodic("rescuer", rescuer.tick, _RESCUE_INTERVAL_S, jitter=0.5),
            Periodic("sweeper", sweeper.tick, SWEEP_S, jitter=0.5),
            Periodic("neighbours", lambda: look_around(store, self.name, self._shelf), BEAT_INTERVAL_S),
        )

    def _consume(self, store: RedisJobStore, hinter: Hinter, generate: Generate) -> None:
        """Run Celery's consumer until the drain; one that dies of a broken connection is replaced, jobs go on."""

        def abort_revoked(request: Any = None, **_: Any) -> None:
            """`celery control revoke` acks the message; the record must not wait for it for ever."""
            if request is not None and request.task == GENERATE and request.args and is_job_id(str(request.args[0])):
                store.abort(str(request.args[0]))

        celery_signals.task_revoked.connect(abort_revoked, weak=False)
        answer_shutdown(self._leave_on_request)
        keep_quiet()
        self._take_signals()
        while not self._drain.draining:
            self._controller(store, hinter, generate).start()
            if not self._drain.draining:
                log.warning("Celery's consumer ended; a new one starts, the jobs in flight go on")
                time.sleep(_RESTART_PAUSE_S)
        self._drain.wait(_SETTLE_S)

    def _controller(self, store: RedisJobStore, hinter: Hinter, generate: Generate) -> Any:
        app, model_of = make_app(self._settings), self._model_of

        @app.task(name=GENERATE, bind=True, ignore_result=True)  # type: ignore[untyped-decorator]
        def run_job(task: Any, job_id: str) -> str:
            if not (isinstance(job_id, str) and is_job_id(job_id)):
                log.error("a message was dropped: it names no job")
                return "no job"
            model = model_of.get(str((task.request.delivery_info or {}).get("routing_key")))
            if model is None:  # its job, if it waits, gets another one in the right queue
                log.error("a message was dropped: it came over a queue that is no model's here")
                return "no model"
            delivery = current_delivery()
            if delivery is not None:
                # Who revokes names this job, wherever it is; the one that runs here may be another's.
                delivery.on_terminate(lambda: store.abort(job_id))
            with self._shelf.seat(model, PATIENCE_S) as seated:
                if not seated:  # other workers may have it
                    raise Reject(MODEL_WAITS, requeue=True)
                with self._places.one() as taken:
                    if not taken:  # this thread is one of those kept free: let it look for a `submit`
                        raise Reject(PLACES_TAKEN, requeue=True)
                    return generate.run(model, job_id)

        register_submit(app, store, self._models, hinter, self._settings)
        queues = [queue_for(spec.name) for spec in self._specs]
        queues += self._submit_queues
        log.info("worker %s takes jobs from %s", self.name, ", ".join(queues))
        return app.WorkController(
            hostname=f"safelight@{self.name.replace(':', '-')}",
            pool_cls=delivery_pool(self._patience_s),
            consumer_cls=CarefulConsumer,
            concurrency=num_slots(self._specs, self._settings.look_ahead_rows),
            queues=queues,
            loglevel=self._settings.log_level.upper(),
            without_gossip=True,
            without_mingle=True,
            heartbeat_interval=_HEARTBEAT_S,
            task_events=True,
        )

    def _may_take(self, uploader: Uploader) -> bool:
        return not self._drain.draining and not uploader.backlog.is_full

    def _patience_s(self) -> float:
        """At a drain the pool waits until all have settled; otherwise it is to be replaced at once."""
        return self._drain.patience_s(_SETTLE_S)

    def _take_signals(self) -> None:
        def leave(signum: int, frame: object) -> None:
            self._drain.begin()
            celery_state.should_stop = 0

        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, leave)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, leave)

    def _leave_on_request(self) -> None:
        """As a signal does, but asking twice hurries nobody."""
        self._drain.request()
        celery_state.should_stop = 0

    def _on_broken(self, reason: str) -> None:
        self._drain.begin_broken(reason)
        celery_state.should_stop = 1


def _webhook_queue(client: redis.Redis, settings: Settings) -> WebhookQueue:
    return WebhookQueue(client, settings.key_prefix, keep_s=settings.dead_letter_ttl_s)


def _load(spec: ModelSpec, stall_s: float) -> DiffusionEngine:
    """Raises `ConfigError` for a model that makes something else than its entry says."""
    log.info("loading model %s from %s", spec.name, spec.source)
    engine = DiffusionEngine.make_engine(engine_config(spec, stall_s))
    makes = engine.capabilities.modality
    if makes != spec.modality:
        engine.close()
        raise ConfigError(f"model {spec.name}: modality = {spec.modality!r}, but {spec.source} makes {makes}")
    return engine
