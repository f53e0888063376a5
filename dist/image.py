"""image.py DIR TAG ARCH COMMIT TIME FILE: an image of the static programs in DIR/static, from nothing.

The archive is what `docker save` writes: `docker load` and `podman load` take it. It is made here rather than by a
container engine, since those put the time of the build into it.
"""

import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile
from datetime import datetime, timezone

USER = 10020


def entry(name, mode, seconds, owner=0, kind=tarfile.REGTYPE, size=0):
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.uid, info.gid, info.type, info.size = mode, seconds, owner, owner, kind, size
    return info


def layer(directory, seconds):
    """The files of the image, sorted, without names of owners."""
    files = {
        "etc/passwd": b"root:x:0:0:root:/:/sbin/nologin\nitg:x:%d:%d:itg:/var/lib/itg:/sbin/nologin\n" % (USER, USER),
        "etc/group": b"root:x:0:\nitg:x:%d:\n" % USER,
        # Names of other containers come from /etc/hosts and from the engine's DNS server: both ways are in the programs.
        "etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n",
        "usr/share/doc/itg/licences-of-crates.txt.gz": (directory / "licences.gz").read_bytes(),
    }
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        files[f"usr/share/doc/itg/{name}"] = pathlib.Path(name).read_bytes()
    programs, links = {}, {}
    for file in (directory / "static").iterdir():
        if file.is_symlink():
            links[f"bin/{file.name}"] = str(file.readlink())
        else:
            programs[f"bin/{file.name}"] = file.read_bytes()
    ours = {"var/lib/itg": 0o755, "etc/itg": 0o755, "etc/itg/keys": 0o700}
    others = {"bin", "etc", "usr", "usr/share", "usr/share/doc", "usr/share/doc/itg", "var", "var/lib"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(others):
            tar.addfile(entry(name, 0o755, seconds, kind=tarfile.DIRTYPE))
        tar.addfile(entry("tmp", 0o1777, seconds, kind=tarfile.DIRTYPE))
        for name, mode in sorted(ours.items()):
            tar.addfile(entry(name, mode, seconds, USER, tarfile.DIRTYPE))
        for table, mode in ((files, 0o644), (programs, 0o755)):
            for name, content in sorted(table.items()):
                tar.addfile(entry(name, mode, seconds, size=len(content)), io.BytesIO(content))
        for name, target in sorted(links.items()):
            link = entry(name, 0o777, seconds, kind=tarfile.SYMTYPE)
            link.linkname = target
            tar.addfile(link)
    return out.getvalue()


def main():
    directory, tag, arch, commit, seconds, file = sys.argv[1:]
    seconds = int(seconds)
    content = layer(pathlib.Path(directory), seconds)
    digest = hashlib.sha256(content).hexdigest()
    created = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = json.dumps({
        "architecture": arch,
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/bin"],
            "WorkingDir": "/var/lib/itg",
            "Cmd": ["itg-cluster", "--help"],
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.revision": commit,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                "org.opencontainers.image.source": "https://github.com/itg-project/itg",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": created, "created_by": "dist/build"}],
    }).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]}]).encode()
    with tarfile.open(file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(entry(digest, 0o755, seconds, kind=tarfile.DIRTYPE))
        for inner, data in ((f"{digest}/layer.tar", content), (name, config), ("manifest.json", manifest)):
            tar.addfile(entry(inner, 0o644, seconds, size=len(data)), io.BytesIO(data))
    packed = len(gzip.compress(content, 6))
    print(f"image: {tag}, {len(content)} bytes, {packed} to transfer")


main()
