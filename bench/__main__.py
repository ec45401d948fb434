"""Measure Semel; with `--peers` beside its peers and the limits, in one interleaved run."""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from bench import report, table
from bench.bars import judge
from bench.plan import PARTS, SIZES, order
from bench.run import Run

HERE = Path(__file__).parent


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--peers", action="store_true", help="run the peers and the limit programs too")
    parser.add_argument("--quick", action="store_const", const="quick", dest="size", help="a small, rough run")
    parser.add_argument("--full", action="store_const", const="full", dest="size", help="the long measures in full")
    parser.add_argument("--rounds", type=int, help="how often each step is repeated")
    parser.add_argument("--parts", default=",".join(part.name for part in PARTS), help="default: %(default)s")
    parser.add_argument("--write-results", action="store_true", help="write bench/RESULTS.md")
    parser.set_defaults(size="normal")
    return parser.parse_args()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave through the doors: servers end with the run
    chosen = options()
    names = chosen.parts.split(",")
    if unknown := set(names) - {part.name for part in PARTS}:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}. Parts: {', '.join(part.name for part in PARTS)}")
    size = SIZES[chosen.size]
    if chosen.rounds:
        size = replace(size, rounds=chosen.rounds)
    parts = tuple(part for part in PARTS if part.name in names)
    steps = order(parts, size.rounds, chosen.peers)
    with Run(size, HERE / ".scratch", say) as run:
        run.start_servers({contender.store for _, _, contender in steps})
        for step in steps:
            run.step(*step)
        verdicts = [verdict for verdict in judge(run.figures) if verdict.bar.asked(set(names), chosen.peers)]
        content = report.as_json(run, verdicts, report.now(), chosen.peers)
    say("\n" + table.text(table.FIGURE_HEAD, table.figure_rows(run.figures)))
    say("\n" + table.text(table.BAR_HEAD, table.bar_rows(verdicts, "bar")))
    say("\nAims\n" + table.text(table.BAR_HEAD, table.bar_rows(verdicts, "aim")))
    say(f"\n{report.write_json(content, HERE / 'out').relative_to(HERE.parent)}")
    if chosen.write_results:
        report.write_page(content, run.figures, verdicts, HERE / "RESULTS.md")
        say("bench/RESULTS.md")
    ours = {contender.name for _, _, contender in steps if contender.ours}
    return 1 if any(name in ours for name, _ in run.figures.missing) else 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
