"""The client of smoke and exchange: kazoo, from the environment that cross/prepare makes where this Python has none."""

import logging
import os
import pathlib
import sys

try:
    from kazoo.client import KazooClient
except ImportError:
    target_directory = os.environ.get("CARGO_TARGET_DIR") or pathlib.Path(__file__).resolve().parents[1] / "target"
    python = pathlib.Path(target_directory) / "cross-venv/bin/python"
    if not python.exists() or sys.prefix != sys.base_prefix:
        sys.exit("there is no kazoo; cross/prepare gets it")
    os.execv(python, [str(python), *sys.argv])

# That connections end here is no news.
logging.getLogger("kazoo").setLevel(logging.CRITICAL + 1)

# So long somebody waits who knows that a program of another machine takes several times as long.
PATIENCE_S = 60
