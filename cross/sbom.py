"""The CycloneDX bill of materials of a binary, and the licence texts of its parts."""

import hashlib
import json
import os
import pathlib
import subprocess
import tomllib
import urllib.parse
import uuid
from datetime import datetime, timezone

TREE = pathlib.Path(__file__).resolve().parent.parent
# Beginnings of the names of licence files, in lower case.
TEXTS = ("licen", "copying", "copyright", "notice", "unlicense")
# The licence of each foreign crate, and of other projects' sources in it. A test compares it with
# Cargo's metadata (tests/cli/licences.rs).
LICENCES = TREE / "src/cli/licences.txt"


def crates(features, triple):
    """Returns (name, version) of every crate in the binary, as `cargo tree` lists them."""
    command = ["tree", "--package", "zoolet", "--no-default-features", "--features", ",".join(features), "--target", triple]
    said = cargo(*command, "--edges", "normal", "--prefix", "none", "--format", "{p}")
    words = [line.split() for line in said.splitlines()]
    return {(name, version.removeprefix("v")) for name, version, *_ in words}


def packages(wanted):
    """Returns Cargo's metadata by (name, version), with checksum and dependencies."""
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--all-features"))
    locked = {(each["name"], each["version"]): each.get("checksum") for each in tomllib.loads((TREE / "Cargo.lock").read_text())["package"]}
    by_id = {each["id"]: each for each in metadata["packages"] if (each["name"], each["version"]) in wanted}
    known = {}
    for node in metadata["resolve"]["nodes"]:
        if package := by_id.get(node["id"]):
            normal = [each["pkg"] for each in node["deps"] if any(kind["kind"] is None for kind in each["dep_kinds"])]
            key = (package["name"], package["version"])
            needs = sorted((by_id[each]["name"], by_id[each]["version"]) for each in normal if each in by_id)
            known[key] = package | {"checksum": locked[key], "needs": needs}
    if missing := wanted - known.keys():
        raise SystemExit(f"Cargo's metadata has no {missing}")
    return known


def bill(known, linked, target, features, epoch):
    """Returns the bill as a document, which is the same for the same sources."""
    root, = (key for key, package in known.items() if package["name"] == "zoolet")
    others = sorted(known.keys() - {root})
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(known[root], "application")
            | {"properties": [{"name": "zoolet:target", "value": target}, {"name": "zoolet:features", "value": features}]},
        },
        "components": [component(known[key], "library") for key in others] + [of_toolchain(each) for each in linked],
        "dependencies": [{"ref": purl(key), "dependsOn": [purl(each) for each in known[key]["needs"]]} for key in [root, *others]],
    }
    # Derived from the content, so equal bills have equal numbers.
    content = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return document | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}"}


def component(package, kind):
    key = (package["name"], package["version"])
    described = {
        "type": kind,
        "bom-ref": purl(key),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(key),
        "licenses": [{"expression": licence(package)}],
    }
    if package["checksum"]:
        described["hashes"] = [{"alg": "SHA-256", "content": package["checksum"]}]
    return described


def licence(package):
    if package["source"] is None:
        return package["license"]
    lines = (line.split(": ") for line in LICENCES.read_text().splitlines() if ": " in line)
    expression = dict(lines).get(f"{package['name']} {package['version']}")
    if expression is None:
        raise SystemExit(f"{LICENCES} has no {package['name']} {package['version']}; run ZOOLET_WRITE=1 cargo test --test cli licences")
    # Old crates write "/" for OR.
    return expression.replace("/", " OR ")


def of_toolchain(part):
    """Returns the component of a part that compiler or linker add, which is no Cargo package."""
    name, version = part["name"], part["version"]
    return {"type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version, "licenses": [{"expression": part["licence"]}]}


def purl(key):
    name, version = key
    return f"pkg:cargo/{name}@{urllib.parse.quote(version, safe='')}"


def texts(known, linked):
    """Returns each licence text of a foreign part once, under the names of its parts."""
    of_text, without = {}, []
    for (name, version), package in sorted(known.items()):
        if package["source"] is None:
            continue
        directory = pathlib.Path(package["manifest_path"]).parent
        # Some crates contain sources of another project, with its licence text in a subdirectory.
        found = [file for file in sorted(directory.rglob("*")) if is_text(file)]
        for file in found:
            of_text.setdefault(plain(file.read_text(errors="replace")), []).append(f"{name} {version}")
        if not found:
            without.append(f"{name} {version} ({licence(package)})")
    for part in linked:
        of_text.setdefault(plain(part["text"]), []).append(f"{part['name']} {part['version']}")
    pieces = ["licences.txt names the licence of every part of zoolet; these are the texts, as they come with the sources.\n"]
    pieces += [f"{'=' * 100}\n{', '.join(dict.fromkeys(names))}\n{'=' * 100}\n{text}\n" for text, names in of_text.items()]
    if without:
        pieces.append(f"{'=' * 100}\nThe sources of these come without a text: {', '.join(without)}\n")
    return "\n".join(pieces)


def is_text(file):
    return file.is_file() and file.name.lower().startswith(TEXTS) and file.suffix != ".rs"


def plain(text):
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def cargo(command, *words):
    asked = subprocess.run([os.environ.get("CARGO") or "cargo", command, "--locked", *words], cwd=TREE, stdout=subprocess.PIPE, text=True)
    if asked.returncode != 0:
        raise SystemExit(f"cargo {command} failed")
    return asked.stdout
