"""parts.py TARGET VERSION TIME DIR PACKAGE...: what the programs of these packages are made of.

Writes DIR/sbom.json (CycloneDX 1.5) and DIR/licences.txt: each crate with its licence, each licence text once. Both
follow from Cargo.lock and the sources of the crates: the same bytes each time.
"""

import hashlib
import html
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone

TEXTS = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense)")
# What the linker adds to static programs: who wrote it, and the licence that this names.
LIBC = [pathlib.Path("/usr/share/doc/libc6/copyright"), pathlib.Path("/usr/share/common-licenses/LGPL-2.1")]


def cargo(*args):
    return subprocess.run(["cargo", *args], check=True, capture_output=True, text=True).stdout


def linked(target, packages):
    """Names and versions of the crates that these packages are built from, build scripts aside."""
    selected = [word for package in packages for word in ("-p", package)]
    tree = cargo("tree", "--locked", "--target", target, "-e", "normal", "--prefix", "none", "--format", "{p}", *selected)
    return {(name, version[1:]) for name, version, *_ in (line.split() for line in tree.splitlines() if line)}


def known(target):
    """Packages by name and version, and their dependencies, as cargo resolves them."""
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    key = {package["id"]: (package["name"], package["version"]) for package in metadata["packages"]}
    edges = {
        key[node["id"]]: {
            key[dep["pkg"]] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])
        }
        for node in metadata["resolve"]["nodes"]
    }
    return {key[package["id"]]: package for package in metadata["packages"]}, edges


def checksums():
    lock = tomllib.loads(pathlib.Path("Cargo.lock").read_text())
    return {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}


def purl(crate):
    return f"pkg:cargo/{crate[0]}@{crate[1]}"


def licence(package):
    return (package["license"] or "see its text").replace("/", " OR ")


def sbom(target, version, seconds, crates, packages, edges):
    sums = checksums()
    components = []
    for crate in sorted(crates):
        package = packages[crate]
        component = {
            "type": "library",
            "bom-ref": purl(crate),
            "name": crate[0],
            "version": crate[1],
            "purl": purl(crate),
        }
        if package["license"]:
            component["licenses"] = [{"expression": licence(package)}]
        if crate in sums:
            component["hashes"] = [{"alg": "SHA-256", "content": sums[crate]}]
        components.append(component)
    rustc = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    rust = re.search(r"^release: (.*)$", rustc, re.M)[1]
    libc = subprocess.run(["ldd", "--version"], capture_output=True, text=True).stdout.split("\n")[0].split()[-1]
    components.append({"type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": rust,
                       "licenses": [{"expression": "MIT OR Apache-2.0"}]})
    if "gnu" in target and libc:
        components.append({"type": "library", "bom-ref": "glibc", "name": "glibc", "version": libc,
                           "description": "in the static programs and the image", "licenses": [{"expression": "LGPL-2.1-or-later"}]})
    text = json.dumps([components, target, version])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": "itg", "name": "itg", "version": version},
        },
        "components": components,
        "dependencies": [
            {"ref": purl(crate), "dependsOn": sorted(purl(to) for to in edges.get(crate, ()) if to in crates)}
            for crate in sorted(crates)
        ],
    }


def rust_notices():
    root = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    return pathlib.Path(root, "share/doc/rust/COPYRIGHT-library.html")


def read(file):
    if not file.is_file():
        print(f"parts: NOT DONE: {file} is missing, whose licences go with the programs", file=sys.stderr)
        sys.exit(3)
    text = file.read_text(errors="replace")
    if file.suffix == ".html":
        text = html.unescape(re.sub(r"<[^>]*>", "", text))
    return re.sub(r"\n{3,}", "\n\n", text.strip().replace("\r\n", "\n"))


def licences(target, crates, packages):
    """Pages of text: a list of crates, then each text with the crates that it came with."""
    lines, texts = ["Crates of others in ITG's programs, and their licences\n\n"], {}
    for crate in sorted(crates):
        package = packages[crate]
        if package["source"] is None:
            continue
        top = pathlib.Path(package["manifest_path"]).parent
        there = (file for file in sorted(top.rglob("*")) if "/." not in f"/{file.relative_to(top)}")
        found = [file for file in there if file.is_file() and TEXTS.match(file.name)]
        authors = ", ".join(package["authors"]) or package["repository"]
        without = "" if found else f" (by {authors}; its package has no text)"
        lines.append(f"{crate[0]} {crate[1]}: {licence(package)}{without}\n")
        for file in found:
            text = file.read_text(errors="replace").strip().replace("\r\n", "\n")
            texts.setdefault(text, []).append(f"{crate[0]} {crate[1]} ({file.relative_to(top)})")
    texts[read(rust_notices())] = ["Rust's standard library"]
    if "gnu" in target:
        text = "\n\n".join(read(file) for file in LIBC)
        texts[text] = ["GNU C library, in the static programs and the image alone; these can be linked again from the sources"]
    for text, names in sorted(texts.items(), key=lambda item: (item[1], item[0])):
        lines.append(f"\n{'=' * 100}\n" + "\n".join(names) + f"\n{'-' * 100}\n{text}\n")
    return "".join(lines)


def main():
    target, version, seconds, directory, *wanted = sys.argv[1:]
    directory = pathlib.Path(directory)
    crates = linked(target, wanted)
    packages, edges = known(target)
    missing = crates - packages.keys()
    assert not missing, f"crates without a description: {missing}"
    bom = sbom(target, version, int(seconds), crates, packages, edges)
    (directory / "sbom.json").write_text(json.dumps(bom, indent=1) + "\n")
    text = licences(target, crates, packages)
    (directory / "licences.txt").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    print(f"parts: {len(crates)} crates, {text.count('=' * 100)} licence texts ({digest})")


main()
