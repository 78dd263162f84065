"""What can a stranger make grow, hold or stall?

Each case in hostile_cases/ starts a real server on loopback, does its worst to it for a bounded
count and time, and prints what that came to next to the bound that rota promises. A case is a
generator function `cases()` of rows (what, figure, unit, bound); a figure above its bound is
missed, and the exit code says so.
"""

import argparse
import importlib
import sys
from pathlib import Path

from common import report

HERE = Path(__file__).resolve().parent


def names():
    """Name the cases there are."""
    return sorted(path.stem for path in (HERE / "hostile_cases").glob("[a-z]*.py"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object a case instead")
    parser.add_argument("case", nargs="*", help=f"some of: {', '.join(names())}")
    args = parser.parse_args()
    missed = 0
    for name in args.case or names():
        module = importlib.import_module(f"hostile_cases.{name}")
        rows = [
            (what, figure, unit, f"at most {bound:,g}", figure <= bound)
            for what, figure, unit, bound in module.cases()
        ]
        missed += sum(not row[-1] for row in rows)
        report(f"hostile: {name}", rows, as_json=args.json)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
