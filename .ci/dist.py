"""Completes what `make dist` builds: the Go module, the chart as an OCI archive, and the list of all files.

    python .ci/dist.py DIST --go-module PATH --version VERSION

DIST has the wheels, the npm package and the packaged chart. What cannot be built is named.
"""

# ruff: noqa: S603, S607, T201

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
GO_REQUIREMENTS = {
    "google.golang.org/genproto/googleapis/rpc": "v0.0.0-20231106174013-bbf56f31fb17",
    "google.golang.org/grpc": "v1.61.0",
    "google.golang.org/protobuf": "v1.32.0",
}


def go_module(dist: Path, path: str, version: str) -> Path | None:
    """The zip of the Go module, as the module proxy serves it; None where the generators are missing.

    The module in the repository is named "dramaturg". In its place the zip has the path under which it is
    published: in the contracts before they are generated, in the imports, and in go.mod with versions.
    """
    if not all(shutil.which(tool) for tool in ("protoc", "protoc-gen-go", "protoc-gen-go-grpc")):
        return None
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "sdk", "go")
        listed = subprocess.check_output(["git", "ls-files", "sdk/go"], cwd=ROOT, text=True)
        for name in listed.splitlines():
            text = (ROOT / name).read_text(encoding="utf-8")
            if name.endswith(".go"):
                text = re.sub(r'^(\s*(?:\w+ )?)"dramaturg(?=["/])', rf'\1"{path}', text, flags=re.MULTILINE)
                # The package keeps its name where the path ends in another one.
                text = text.replace(f'\t"{path}"\n', f'\tdramaturg "{path}"\n')
            if name.endswith("go.mod"):
                requirements = "".join(f"\t{module} {at}\n" for module, at in GO_REQUIREMENTS.items())
                text = text.replace("module dramaturg\n", f"module {path}\n")
                text += f"\nrequire (\n{requirements})\n"
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_text(text, encoding="utf-8")
        protos = Path(folder, "protos")
        for proto in (ROOT / "protos").rglob("*.proto"):
            target = protos / proto.relative_to(ROOT / "protos")
            target.parent.mkdir(parents=True, exist_ok=True)
            text = proto.read_text(encoding="utf-8")
            text = text.replace('go_package = "dramaturg/', f'go_package = "{path}/')
            target.write_text(text, encoding="utf-8")
        names = [str(proto.relative_to(protos)) for proto in sorted(protos.rglob("*.proto"))]
        flags = (f"out={work}", f"opt=module={path}")
        options = [f"--{kind}_{flag}" for kind in ("go", "go-grpc") for flag in flags]
        subprocess.run(["protoc", f"-I{protos}", *options, *names], check=True)
        for name in ("LICENSE", "NOTICE"):
            shutil.copy(ROOT / name, work / name)
        target = dist / f"{path.replace('/', '-')}-v{version}.zip"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(one for one in work.rglob("*") if one.is_file()):
                archive.write(file, f"{path}@v{version}/{file.relative_to(work)}")
    return target


def chart_archive(dist: Path) -> Path | None:
    """The packaged chart as an OCI archive, for `skopeo copy oci-archive:`; None without a package."""
    packages = sorted(dist.glob("dramaturg-chart-*.tgz"))
    if not packages:
        return None
    described = yaml.safe_load((ROOT / "k8s" / "chart" / "Chart.yaml").read_text(encoding="utf-8"))
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    config = blob(json.dumps(described).encode(), "application/vnd.cncf.helm.config.v1+json")
    layer = blob(packages[0].read_bytes(), "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}
    name = {"org.opencontainers.image.ref.name": str(described["version"])}
    entry = blob(json.dumps(manifest).encode(), kind, annotations=name)
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    target = dist / f"{described['name']}-chart-{described['version']}.oci.tar"
    with tarfile.open(target, "w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target


def _warn(what: str) -> None:
    print(f"not built: {what}", file=sys.stderr)


def main() -> None:
    """Writes the archives and lists DIST."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dist", type=Path)
    parser.add_argument("--go-module", default="")
    parser.add_argument("--version", required=True)
    given = parser.parse_args()
    if not given.go_module:
        _warn("the Go module, which needs its path: make dist GO_MODULE=HOST/PATH")
    elif "." not in given.go_module.partition("/")[0]:
        sys.exit(f"GO_MODULE={given.go_module}: the path begins with a host, such as example.com/dramaturg")
    elif go_module(given.dist, given.go_module, given.version) is None:
        _warn("the Go module, which needs protoc, protoc-gen-go and protoc-gen-go-grpc")
    if chart_archive(given.dist) is None:
        _warn("the OCI archive of the chart, which needs the packaged chart")
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(given.dist.iterdir())
        if file.is_file() and file.name != "SHA256SUMS"
    ]
    (given.dist / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print("".join(sums), end="")


if __name__ == "__main__":
    main()
