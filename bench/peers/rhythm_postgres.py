"""Rhythm on PostgreSQL: starts only. Its worker runs one task at a time and is behind every bar."""

import sys
from concurrent.futures import ThreadPoolExecutor

import rhythm
from rhythm.core import rust

from bench.measure import Arguments, Stopwatch, arguments, emit

THREADS = 16  # the best of the settings tried


@rhythm.task
def noop() -> int:
    return 1


def enqueue(i: int) -> bool:
    """True if the key was new."""
    try:
        rust.create_execution_sync(exec_type="task", target_name="noop", queue="default", inputs="{}", id=f"many-{i}")
    except RuntimeError as error:
        if "exists" not in str(error):
            raise
        return False
    return True


def throughput(args: Arguments) -> None:
    rhythm.init(args.url, auto_migrate=True)
    for work, expected in (("W1 many", args.tasks), ("W3", 0)):
        with ThreadPoolExecutor(THREADS) as threads, Stopwatch() as watch:
            new = sum(threads.map(enqueue, range(args.tasks)))
        if new != expected:
            raise RuntimeError(f"Rhythm accepted {new} keys as new instead of {expected}")
        emit(work, args.tasks / watch.seconds, "1/s", threads=THREADS)


def main() -> None:
    args = arguments()
    if args.part != "throughput":
        sys.exit(f"Rhythm has no part {args.part!r}")
    throughput(args)


if __name__ == "__main__":
    main()
