"""What the scripts that try a binary count."""

import sys
import time

began = time.monotonic()
count = 0


def check(holds, what):
    """One more that passed, or the end."""
    global count
    if not holds:
        print(f"FAILED: {what}\n{count} passed, 1 failed")
        sys.exit(1)
    count += 1
    print(f"  {time.monotonic() - began:5.1f} s  {what}", flush=True)


def passed():
    return f"{count} passed, 0 failed"
