"""Counts the checks of the scripts that test a binary."""

import sys
import time

began = time.monotonic()
count = 0


def check(holds, what):
    """Counts a passed check; a failed one ends the script with exit code 1."""
    global count
    if not holds:
        print(f"FAILED: {what}\n{count} passed, 1 failed")
        sys.exit(1)
    count += 1
    print(f"  {time.monotonic() - began:5.1f} s  {what}", flush=True)


def passed():
    return f"{count} passed, 0 failed"
