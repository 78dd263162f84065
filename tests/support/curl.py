"""As much of curl as the pages use, for machines that have none."""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request


def main() -> None:
    """Send one request and print the answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    given = parser.parse_args()
    body = given.data.encode() if given.data is not None else None
    request = urllib.request.Request(given.url, body, method=given.method)
    for header in given.headers:
        request.add_header(*(part.strip() for part in header.split(":", 1)))
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            sys.stdout.write(answer.read().decode())
    except urllib.error.HTTPError as error:
        sys.stdout.write(error.read().decode())


if __name__ == "__main__":
    main()
