"""The rows of targets.toml, and what Cargo is told for one: the same whoever compiles and links, here or in an image."""

import json
import pathlib
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
TABLE = tomllib.loads((HERE / "targets.toml").read_text())
FEATURE_SETS = TABLE.pop("feature_sets")
CROSS = TABLE.pop("cross")


def named(name):
    return TABLE.get(name) or sys.exit(f"{name}: targets.toml has {', '.join(TABLE)}")


def buildable():
    """Names of the rows that somebody has built."""
    return [name for name, row in TABLE.items() if row["builds"]]


def words(row, features):
    """What follows `cargo`."""
    command = ["build", "--locked", "--profile", profile(features), "--package", "zoolet", "--bin", "zoolet", "--target", row["triple"]]
    command += ["--no-default-features", "--features", ",".join(FEATURE_SETS[features]["features"])]
    return command + flagged(row, flags(row) + FEATURE_SETS[features]["flags"])


def profile(features):
    """Cargo's; what it leaves is in a directory of that name."""
    return FEATURE_SETS[features]["profile"]


def flagged(row, flags):
    """The words that have Cargo give rustc these flags, with those of other such words before and behind. The environment could say them instead of all these
    words, so it must not (unflagged)."""
    return ["--config", f"target.{row['triple']}.rustflags={quoted(flags)}"]


def unflagged(environment):
    """Without what Cargo would heed in the place of flags on its command line."""
    return {name: value for name, value in environment.items() if name not in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS")}


def flags(row):
    """Of rustc, for everything, whatever is in the binary."""
    flags = {
        "static": ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"],
        "static-pie": ["-Ctarget-feature=+crt-static"],
        "dynamic": ["-Ctarget-feature=-crt-static"],
    }[row["link"]]
    return flags + ([f"-Ctarget-feature={row['cpu_features']}"] if row["cpu_features"] else [])


def environment(row):
    return row.get("environment", {})


def image(name):
    """What the tool `cross` builds it in, and whether that is verified."""
    digest = CROSS["digests"].get(name)
    if digest is None:
        sys.exit(f"{name}: cross has no image")
    tagged = f"{CROSS['images']}/{named(name)['triple']}"
    return (f"{tagged}@{digest}", True) if digest else (f"{tagged}:{CROSS['version']}", False)


def cross_toml():
    """What cross/Cross.toml is: everything of a row that is not on the command line of `cross`."""
    text = "# Written by cross/drift --write from targets.toml, for the tool `cross`: CROSS_CONFIG=cross/Cross.toml.\n"
    for name in CROSS["digests"]:
        row = named(name)
        where, is_verified = image(name)
        text += f"\n[target.{row['triple']}]\n"
        text += "" if is_verified else "# Unverified: nobody has recorded the digest of what has this tag.\n"
        text += f"image = {quoted(where)}\n"
        if said := environment(row):
            text += f"\n[target.{row['triple']}.env]\npassthrough = {quoted([f'{name}={value}' for name, value in said.items()])}\n"
    return text


def quoted(value):
    # As JSON does it, which is also TOML.
    return json.dumps(value)
