"""The cross compiler and linker on this machine.

These are a rustc with the source of its standard library, and Zig.
"""

import hashlib
import lzma
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
    """Returns Cargo's arguments that compile the standard library; they follow those of the row."""
    built = rows.FEATURE_SETS[features]
    return [f"-Zbuild-std={built['std']}", f"-Zbuild-std-features={built['std_features']}"]


def cargo():
    rustc, _ = compiler()
    return os.environ.get("CARGO") or str(rustc.with_name("cargo"))


def inherited():
    """Returns the environment without variables that change how C code is compiled."""
    words = ("CFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "JEMALLOC", "CONFIG_SITE", "CRATE_CC", "_cv_")
    # The crate cc reads names with the hyphens of a target before those that `environment` sets.
    others = [name for name in os.environ if re.match("(CC|CXX|AR|RANLIB)(_|$)", name)]
    return {name: value for name, value in os.environ.items() if name not in others and not any(word in name for word in words)}


def environment(row):
    rustc, _ = compiler()
    name = row["triple"].replace("-", "_")
    return {
        "RUSTC": str(rustc),
        # Building the standard library is an unstable feature of Cargo.
        "RUSTC_BOOTSTRAP": "1",
        f"CARGO_TARGET_{name.upper()}_LINKER": str(HERE / "zig-cc"),
        f"CC_{name}": str(HERE / "zig-cc"),
        f"AR_{name}": str(HERE / "zig-ar"),
        "ZOOLET_ZIG": zig(),
        "ZOOLET_ZIG_TARGET": row["zig_target"],
        "ZOOLET_ZIG_CPU": row["zig_cpu"],
    }


def flags():
    """Returns the flags of rustc in addition to those of the row."""
    _, sysroot = compiler()
    # Cargo does not track Zig. This flag makes it recompile everything for another version of Zig.
    flags = ["-Clink-self-contained=no", f'--cfg=zig="{zig_version()}"', '--check-cfg=cfg(zig, values(any()))']
    # Panic messages name source files. Renaming makes builds in different directories identical.
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo").resolve()
    renamed = {TREE: "zoolet", pathlib.Path(sysroot).resolve() / "lib/rustlib/src/rust": "rust", source(sysroot).resolve(): "rust"}
    renamed |= {place: "crates" for place in sorted(home.glob("registry/src/*"))}
    return flags + [f"--remap-path-prefix={place}={to}" for place, to in renamed.items()]


def guided(row, features):
    """Returns the flags of rustc for profile-guided optimization; none if the row has no profile."""
    name = row.get("profdata")
    if not name or features != "full":
        return []
    packed = (HERE / name).read_bytes()
    # When the content of the profile changes, Cargo recompiles only the crates of this tree. Another file
    # name makes Cargo recompile all crates.
    version = hashlib.sha256(packed).hexdigest()[:16]
    file = target_directory() / "cross" / f"{version}.profdata"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_bytes(lzma.decompress(packed))
        part.replace(file)
    return [f"-Cprofile-use={file}", "-Cllvm-args=-pgo-warn-missing-function"]


def parts(row):
    """Returns the parts of the binary that are no crates, with their licence texts.

    The licences require these texts where the binary is distributed.
    """
    rustc, sysroot = compiler()
    found = [("rust-std", said(rustc, "--version").split()[1], "MIT OR Apache-2.0", source(sysroot) / "COPYRIGHT")]
    if row["link"] != "dynamic":
        # Zig includes all three, but does not tell their upstream versions.
        version = f"zig-{zig_version()}"
        library = pathlib.Path(re.search(r'lib_dir"?\s*[=:]\s*"([^"]+)"', said(*zig().split(), "env"))[1])
        # The Python package keeps licence texts in a separate directory.
        places = [library, *library.parents[1].glob("ziglang-*.dist-info/licenses/ziglang/lib")]
        for name, licence, file in (
            ("musl", "MIT", "libc/musl/COPYRIGHT"),
            ("libunwind", "Apache-2.0 WITH LLVM-exception", "libunwind/LICENSE.TXT"),
            ("compiler-rt", "MIT", "../LICENSE"),
        ):
            text = next((place / file for place in places if (place / file).exists()), None)
            found.append((name, version, licence, text or stop(f"cannot find the licence text {file} of Zig")))
    return [{"name": name, "version": version, "licence": licence, "text": file.read_text()} for name, version, licence, file in found]


def said(*words):
    return subprocess.run(words, cwd=TREE, stdout=subprocess.PIPE, text=True, check=True).stdout


def compiler():
    """Returns the first rustc in PATH with the source of its standard library, and its sysroot."""
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
    # The Python package ziglang, in the virtual environment of cross/prepare.
    python = target_directory() / "cross-venv/bin/python"
    if python.exists():
        return f"{python} -m ziglang"
    stop("cannot find zig in PATH; cross/prepare installs one")


def zig_version():
    return said(*zig().split(), "version").strip()


def target_directory():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or TREE / "target").absolute()


def stop(why):
    print(f"cross/{pathlib.Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(1)
