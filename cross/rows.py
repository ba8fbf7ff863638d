"""The rows of targets.toml, and what Cargo is told for one: the same whoever compiles and links, here or in an image."""

import pathlib
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
TABLE = tomllib.loads((HERE / "targets.toml").read_text())
FEATURE_SETS = TABLE.pop("feature_sets")


def named(name):
    return TABLE.get(name) or sys.exit(f"{name}: targets.toml has {', '.join(TABLE)}")


def buildable():
    """Names of the rows that somebody has built."""
    return [name for name, row in TABLE.items() if row["builds"]]


def words(row, features):
    """What follows `cargo`."""
    command = ["build", "--locked", "--profile", "dist", "--package", "zoolet", "--bin", "zoolet", "--target", row["triple"]]
    return command + ["--no-default-features", "--features", ",".join(FEATURE_SETS[features])]


def flags(row):
    """Of rustc, for everything."""
    flags = {
        "static": ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"],
        "static-pie": ["-Ctarget-feature=+crt-static"],
        "dynamic": ["-Ctarget-feature=-crt-static"],
    }[row["link"]]
    return flags + ([f"-Ctarget-feature={row['cpu_features']}"] if row["cpu_features"] else [])


def environment(row):
    return row.get("environment", {})
