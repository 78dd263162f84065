"""Run many seeds outside pytest, on all cores: python tests/simulation/run.py --seeds 100000."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.simulation import ViolationError, run_seed  # noqa: E402 - found by the line above

CHUNK = 200


def run_chunk(seeds: range) -> tuple[int, list[str]]:
    """Run some seeds; give how many records they made, and what they broke."""
    records, broken = 0, []
    for seed in seeds:
        try:
            records += run_seed(seed).records
        except ViolationError as violation:
            broken.append(str(violation))
    return records, broken


def main() -> int:
    """Run what the command line asks for; 1 if any seed broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one, and tell all of it")
    parser.add_argument("--jobs", type=int, default=None, help="processes at once")
    options = parser.parse_args()
    if options.seed is not None:
        print(run_seed(options.seed, verbose=True))
        return 0
    last = options.first + options.seeds
    chunks = [range(at, min(at + CHUNK, last)) for at in range(options.first, last, CHUNK)]
    records = done = failed = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for chunk, (made, broken) in zip(chunks, pool.map(run_chunk, chunks), strict=True):
            done, records, failed = done + len(chunk), records + made, failed + len(broken)
            for text in broken:
                print(text)
            sys.stderr.write(f"\r{done} of {options.seeds} seeds, {failed} broken ")
    print(f"\n{done} seeds, {records} records, {failed} broken promises")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
