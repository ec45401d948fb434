"""Celery on Redis, for the latency from start to result. Redis syncs once a second: up to 1 s can be lost."""

import os
import sys
import time

import celery
import redis

from bench.measure import Arguments, arguments, clock, emit_latency, process

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


def main() -> None:
    args = arguments()
    if args.part != "latency":
        sys.exit(f"Celery has no part {args.part!r}")
    if os.environ.get(URL) != args.url:  # the module's app is bound on import: once more, with the server
        again = [sys.executable, "-m", MODULE, *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, URL: args.url})
    latency(args)


if __name__ == "__main__":
    main()
