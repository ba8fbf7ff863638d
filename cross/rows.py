"""The rows of targets.toml, and Cargo's arguments for a row.

The arguments are the same for a build on this machine and for a build in an image.
"""

import json
import pathlib
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
TABLE = tomllib.loads((HERE / "targets.toml").read_text())
FEATURE_SETS = TABLE.pop("feature_sets")
CROSS = TABLE.pop("cross")


def named(name):
    return TABLE.get(name) or sys.exit(f"{name}: no such target; targets.toml has {', '.join(TABLE)}")


def buildable():
    """Returns the names of the rows that are known to build."""
    return [name for name, row in TABLE.items() if row["builds"]]


def words(row, features):
    """Returns the arguments of `cargo`."""
    command = ["build", "--locked", "--profile", profile(features), "--package", "zoolet", "--bin", "zoolet", "--target", row["triple"]]
    return command + ["--no-default-features", "--features", ",".join(cargo_features(row, features))]


def cargo_features(row, features):
    """Returns the features of the crate zoolet."""
    has_jemalloc = row["allocator"] == "jemalloc" and features == "full"
    if has_jemalloc and not row["triple"].startswith("x86_64-"):
        sys.exit(f"{row['triple']}: jemalloc needs x86-64; set allocator in cross/targets.toml")
    return FEATURE_SETS[features]["features"] + (["jemalloc"] if has_jemalloc else [])


def profile(features):
    """Returns Cargo's profile, which is also the name of its output directory."""
    return FEATURE_SETS[features]["profile"]


def encoded(flags):
    """Returns the environment that passes these flags to rustc.

    Cargo then ignores flags from other variables and from its configuration files. A builder's
    machine may have such files.
    """
    return {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}


def flags(row, features):
    """Returns the flags of rustc for all crates."""
    flags = FEATURE_SETS[features]["flags"] + {
        "static": ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"],
        "static-pie": ["-Ctarget-feature=+crt-static"],
        "dynamic": ["-Ctarget-feature=-crt-static"],
    }[row["link"]]
    return flags + ([f"-Ctarget-feature={row['cpu_features']}"] if row["cpu_features"] else [])


def environment(row):
    return row.get("environment", {})


def image(name):
    """Returns the image in which `cross` builds the row, and whether a digest verifies it."""
    digest = CROSS["digests"].get(name)
    if digest is None:
        sys.exit(f"{name}: targets.toml names no image of the tool cross")
    tagged = f"{CROSS['images']}/{named(name)['triple']}"
    return (f"{tagged}@{digest}", True) if digest else (f"{tagged}:{CROSS['version']}", False)


def cross_toml():
    """Returns the text of cross/Cross.toml: the rows' settings that `cross` has no argument for."""
    text = "# Written by cross/drift --write from targets.toml, for the tool `cross`. `cross/release --with-cross` sets\n# CROSS_CONFIG to this file. It passes the flags of rustc in the environment: they differ between feature sets.\n"
    for name in CROSS["digests"]:
        row = named(name)
        where, is_verified = image(name)
        # cross/release sets the value of CARGO_ENCODED_RUSTFLAGS.
        passed = ["CARGO_ENCODED_RUSTFLAGS", *(f"{name}={value}" for name, value in environment(row).items())]
        text += f"\n[target.{row['triple']}]\n"
        text += "" if is_verified else "# Unverified: targets.toml has no digest for this tag.\n"
        text += f"image = {quoted(where)}\n\n[target.{row['triple']}.env]\npassthrough = {quoted(passed)}\n"
    return text


def quoted(value):
    # These JSON values are valid TOML.
    return json.dumps(value)
