"""Huey on SQLite, every commit synced. It stores results and has no keys."""

import os
import sys

from huey import SqliteHuey

from bench.measure import Arguments, Stopwatch, arguments, drain_rate, emit, process

MODULE = "bench.peers.huey_sqlite"
FILE = "BENCH_HUEY_FILE"  # how the consumer, which imports this module, learns the file
THREADS = "1"  # the best of the settings tried
CONSUMER = ["-w", THREADS, "-k", "thread", "-d", "0.005", "-m", "0.01", "-b", "1.0", "-q", "-n"]

huey = SqliteHuey("q", filename=os.environ.get(FILE, ":memory:"), fsync=True)


@huey.task()
def noop() -> int:
    return 1


def throughput(args: Arguments) -> None:
    with Stopwatch() as watch:
        for _ in range(args.tasks):
            noop()
    emit("W1 x1", args.tasks / watch.seconds, "1/s", keys="none")
    command = [sys.executable, "-m", "huey.bin.huey_consumer", f"{MODULE}.huey", *CONSUMER]
    with process(command, args.scratch / "huey.log"):
        rate = drain_rate(args.tasks, lambda: args.tasks - huey.storage.result_store_size())
    emit("W2", rate, "tasks/s", threads=THREADS)


def main() -> None:
    args = arguments()
    if args.part != "throughput":
        sys.exit(f"Huey has no part {args.part!r}")
    file = args.url.removeprefix("sqlite:///")
    if os.environ.get(FILE) != file:  # the module's huey is bound on import: once more, with the file
        os.execve(sys.executable, [sys.executable, "-m", MODULE, *sys.argv[1:]], {**os.environ, FILE: file})
    from bench.peers import huey_sqlite  # so that the task carries the module's name, not __main__

    huey_sqlite.throughput(args)


if __name__ == "__main__":
    main()
