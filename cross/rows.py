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
    return command + ["--no-default-features", "--features", ",".join(FEATURE_SETS[features]["features"])]


def profile(features):
    """Cargo's; what it leaves is in a directory of that name."""
    return FEATURE_SETS[features]["profile"]


def encoded(flags):
    """As Cargo takes flags of rustc from its environment. There they are the only ones: whatever other variables and its files of configuration say, and of those
    a builder may have some, is passed over."""
    return {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}


def flags(row, features):
    """Of rustc, for everything."""
    flags = FEATURE_SETS[features]["flags"] + {
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
    text = "# Written by cross/drift --write from targets.toml, for the tool `cross`: CROSS_CONFIG=cross/Cross.toml, and flags of rustc\n# in the environment, as `cross/release --with-cross` says them: they differ between feature sets.\n"
    for name in CROSS["digests"]:
        row = named(name)
        where, is_verified = image(name)
        # What flags it is given, cross/release says.
        passed = ["CARGO_ENCODED_RUSTFLAGS", *(f"{name}={value}" for name, value in environment(row).items())]
        text += f"\n[target.{row['triple']}]\n"
        text += "" if is_verified else "# Unverified: nobody has recorded the digest of what has this tag.\n"
        text += f"image = {quoted(where)}\n\n[target.{row['triple']}.env]\npassthrough = {quoted(passed)}\n"
    return text


def quoted(value):
    # As JSON does it, which is also TOML.
    return json.dumps(value)
