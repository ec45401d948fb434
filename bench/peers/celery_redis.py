"""Celery on Redis: the latency from start to result, and beat. Redis syncs once a second: up to 1 s can be lost."""

import os
import sys
import time
from datetime import timedelta

import celery
import redis
from celery.beat import Scheduler
from celery.schedules import schedule

from bench.measure import Arguments, Stopwatch, arguments, clock, emit, emit_latency, process

MODULE = "bench.peers.celery_redis"
URL = "BENCH_CELERY_URL"  # how the worker, which imports this module, learns the server
PAUSE = 0.01
QUIET = ["-l", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
WORKER = ["-P", "prefork", "-c", "2", *QUIET]

broker = os.environ.get(URL, "redis://127.0.0.1")
app = celery.Celery(MODULE, broker=f"{broker}/0", backend=f"{broker}/1")
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=128,
    broker_connection_retry_on_startup=True,
    result_expires=3600,
    task_default_queue="q",
)


@app.task(name="noop")
def noop() -> int:
    return 1


def latency(args: Arguments) -> None:
    for database in (0, 1):
        redis.from_url(f"{args.url}/{database}").flushdb()
    command = [sys.executable, "-m", "celery", "-A", MODULE, "worker", *WORKER]
    with process(command, args.scratch / "celery.log"):
        noop.apply_async().get(timeout=30)  # the worker is up
        time.sleep(1)
        seconds = []
        for _ in range(args.samples):
            began = clock()
            noop.apply_async().get(timeout=10)
            seconds.append(clock() - began)
            time.sleep(PAUSE)
    emit_latency(seconds, pool="prefork", concurrency=2)


def schedules(args: Arguments) -> None:
    """Beat, in this process: it sends a message for each entry that is due, and keeps no record of what it sent."""
    queue = redis.from_url(f"{args.url}/0")
    queue.flushdb()
    beat = Scheduler(app, lazy=True)
    hour = timedelta(hours=1)
    for i in range(args.tasks):
        beat.add(name=f"due-{i}", task="noop", schedule=schedule(hour), last_run_at=app.now() - hour)
    with Stopwatch() as watch:
        for _ in range(args.tasks):
            beat.tick()
    if queue.llen("q") != args.tasks:
        raise RuntimeError(f"{args.tasks} entries were due, and {queue.llen('q')} messages were sent")
    emit("schedules, due", args.tasks / watch.seconds, "1/s", slots=args.tasks, schedules=args.tasks, record="none")


def main() -> None:
    args = arguments()
    parts = {"latency": latency, "schedules": schedules}
    if args.part not in parts:
        sys.exit(f"Celery has no part {args.part!r}")
    if os.environ.get(URL) != args.url:  # the module's app is bound on import: once more, with the server
        again = [sys.executable, "-m", MODULE, *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, URL: args.url})
    parts[args.part](args)


if __name__ == "__main__":
    main()
