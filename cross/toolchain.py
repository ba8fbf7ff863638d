"""The compiler and the linker of this machine that make binaries for others: a rustc with the source of its standard library, and Zig."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import rows

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent


def words(features):
    """For Cargo, behind those of the row: the standard library is compiled with the rest."""
    built = rows.FEATURE_SETS[features]
    return [f"-Zbuild-std={built['std']}", f"-Zbuild-std-features={built['std_features']}"]


def cargo():
    rustc, _ = compiler()
    return os.environ.get("CARGO") or str(rustc.with_name("cargo"))


def environment(row):
    rustc, _ = compiler()
    name = row["triple"].replace("-", "_")
    return {
        "RUSTC": str(rustc),
        # Building the standard library is no stable feature of Cargo.
        "RUSTC_BOOTSTRAP": "1",
        f"CARGO_TARGET_{name.upper()}_LINKER": str(HERE / "zig-cc"),
        f"CC_{name}": str(HERE / "zig-cc"),
        f"AR_{name}": str(HERE / "zig-ar"),
        "ZOOLET_ZIG": zig(),
        "ZOOLET_ZIG_TARGET": row["zig_target"],
        "ZOOLET_ZIG_CPU": row["zig_cpu"],
    }


def flags():
    """Of rustc, beside those of the row."""
    _, sysroot = compiler()
    # Cargo does not know that there is a Zig: with another one everything is compiled again because it is named here.
    flags = ["-Clink-self-contained=no", f'--cfg=zig="{zig_version()}"', '--check-cfg=cfg(zig, values(any()))']
    # Messages of panics name source files: in two places, built from the same sources, the same.
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo").resolve()
    renamed = {TREE: "zoolet", pathlib.Path(sysroot).resolve() / "lib/rustlib/src/rust": "rust", source(sysroot).resolve(): "rust"}
    renamed |= {place: "crates" for place in sorted(home.glob("registry/src/*"))}
    return flags + [f"--remap-path-prefix={place}={to}" for place, to in renamed.items()]


def parts(row):
    """What is in the binary and no crate, with the texts of its licences: their authors want to be named where it is passed on."""
    rustc, sysroot = compiler()
    found = [("rust-std", said(rustc, "--version").split()[1], "MIT OR Apache-2.0", source(sysroot) / "COPYRIGHT")]
    if row["link"] != "dynamic":
        # Zig brings all three, and says nothing of the versions that they have elsewhere.
        version = f"zig-{zig_version()}"
        library = pathlib.Path(re.search(r'lib_dir"?\s*[=:]\s*"([^"]+)"', said(*zig().split(), "env"))[1])
        # The package for Python has the texts of licences in a directory of their own.
        places = [library, *library.parents[1].glob("ziglang-*.dist-info/licenses/ziglang/lib")]
        for name, licence, file in (
            ("musl", "MIT", "libc/musl/COPYRIGHT"),
            ("libunwind", "Apache-2.0 WITH LLVM-exception", "libunwind/LICENSE.TXT"),
            ("compiler-rt", "MIT", "../LICENSE"),
        ):
            text = next((place / file for place in places if (place / file).exists()), None)
            found.append((name, version, licence, text or stop(f"there is no {file} with Zig")))
    return [{"name": name, "version": version, "licence": licence, "text": file.read_text()} for name, version, licence, file in found]


def said(*words):
    return subprocess.run(words, cwd=TREE, stdout=subprocess.PIPE, text=True, check=True).stdout


def compiler():
    """The first rustc of PATH that has the source of its standard library, and its sysroot."""
    named = os.environ.get("RUSTC")
    places = [pathlib.Path(named)] if named else [pathlib.Path(place) / "rustc" for place in os.environ["PATH"].split(os.pathsep)]
    for rustc in places:
        if os.access(rustc, os.X_OK):
            asked = subprocess.run([rustc, "--print", "sysroot"], cwd=TREE, stdout=subprocess.PIPE, text=True)
            sysroot = asked.stdout.strip()
            if asked.returncode == 0 and (source(sysroot) / "library/Cargo.lock").exists():
                return rustc, sysroot
    stop("no rustc in PATH has the source of its standard library; cross/prepare installs one on Debian")


def source(sysroot):
    return pathlib.Path(sysroot) / "lib/rustlib/src/rust"


def zig():
    if named := os.environ.get("ZIG"):
        return named
    if found := shutil.which("zig"):
        return found
    # The package of the same name for Python, in the environment that cross/prepare makes.
    python = target_directory() / "cross-venv/bin/python"
    if python.exists():
        return f"{python} -m ziglang"
    stop("there is no zig in PATH; cross/prepare gets one")


def zig_version():
    return said(*zig().split(), "version").strip()


def target_directory():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or TREE / "target").absolute()


def stop(why):
    print(f"cross/{pathlib.Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(1)
