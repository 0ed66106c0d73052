"""The volumes of a pod, as folders: configuration, secrets, certificates, room to write."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from tests.k8s.rendered import Pod, Rendering
from tests.support.certificates import Authority, Certificate

Secrets = Mapping[str, Mapping[str, str]]
"""Values by the name of the Secret and the key."""


class Mounted:
    """Files as the kubelet mounts them: links through one folder, and a change turns that one link."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir(parents=True)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Replaces all files at once."""
        self._count += 1
        made = self._folder / f"..{self._count}"
        made.mkdir()
        for name, content in files.items():
            (made / name).write_bytes(content)
        turned = self._folder / "..turning"
        turned.symlink_to(made.name)
        turned.rename(self._folder / "..data")
        links = {link.name for link in self._folder.iterdir() if not link.name.startswith("..")}
        for name in files.keys() - links:
            (self._folder / name).symlink_to(Path("..data") / name)
        for name in links - files.keys():
            (self._folder / name).unlink()


class CertificateVolume:
    """A certificate as cert-manager's CSI driver mounts it.

    Attributes:
        authorities: The file of the trusted authorities.
    """

    def __init__(self, folder: Path) -> None:
        self._mounted = Mounted(folder)
        self.authorities = folder / "ca.crt"

    def put(self, certificate: Certificate, authorities: Iterable[Path]) -> None:
        """Replaces all three files at once."""
        trusted = b"".join(file.read_bytes() for file in authorities)
        pair = certificate.certificate.read_bytes(), certificate.private_key.read_bytes()
        self._mounted.put({"tls.crt": pair[0], "tls.key": pair[1], "ca.crt": trusted})


class Volumes:
    """The volumes of one pod below a folder, which is not where the manifest mounts them.

    Attributes:
        folder: The folder.
        certificate: The certificate's volume, where the pod has one.
        mounted: The other volumes, by name.
    """

    def __init__(self, folder: Path, pod: Pod, rendering: Rendering, secrets: Secrets) -> None:
        self._places = {
            mount["mountPath"]: str(folder / mount["name"]) for mount in pod.container["volumeMounts"]
        }
        self.folder = folder
        self.certificate: CertificateVolume | None = None
        self.mounted: dict[str, Mounted] = {}
        for volume in pod.spec["volumes"]:
            place = folder / volume["name"]
            if volume.get("csi", {}).get("driver") == "csi.cert-manager.io":
                self.certificate = CertificateVolume(place)
                continue
            self.mounted[volume["name"]] = Mounted(place)
            files = _files(volume, rendering, secrets)
            self.mounted[volume["name"]].put(
                {name: self.relocate(text).encode() for name, text in files.items()}
            )

    def relocate(self, text: str) -> str:
        """A text with the paths of the mounts replaced by those of the folders."""
        paths = sorted(self._places, key=len, reverse=True)
        found = re.compile(rf"({'|'.join(map(re.escape, paths))})(?=[/\"]|$)")
        return found.sub(lambda match: self._places[match[1]], text)


def _files(volume: Mapping[str, Any], rendering: Rendering, secrets: Secrets) -> Mapping[str, str]:
    if "configMap" in volume:
        data: Mapping[str, str] = rendering.one("ConfigMap", volume["configMap"]["name"])["data"]
        return data
    if "secret" in volume:
        if volume["secret"].get("optional") and volume["secret"]["secretName"] not in secrets:
            return {}
        values = secrets[volume["secret"]["secretName"]]
        items = volume["secret"].get("items", [{"key": key, "path": key} for key in values])
        return {item["path"]: values[item["key"]] for item in items}
    assert {"emptyDir", "persistentVolumeClaim"} & volume.keys(), f"a volume of an unknown kind: {volume}"
    return {}


def issue(authority: Authority, pod: Pod, namespace: str) -> Certificate:
    """A certificate with the names that the pod's volume asks for."""
    (asked,) = [volume["csi"]["volumeAttributes"] for volume in pod.spec["volumes"] if "csi" in volume]
    values = {"SERVICE_ACCOUNT_NAME": pod.spec["serviceAccountName"], "POD_NAMESPACE": namespace}

    def filled(attribute: str) -> list[str]:
        text = asked[f"csi.cert-manager.io/{attribute}"]
        return re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], text).split(",")

    (identity,) = filled("uri-sans")
    return authority.issue(pod.name, names=[f"DNS:{name}" for name in filled("dns-names")], uri=identity)


class Tokens:
    """A caller of the gateway, an evaluator of one tenant, and the Secret by which the gateway knows it.

    Attributes:
        secret: The file of the token.
        callers: What the Secret "callers" holds.
    """

    def __init__(self, folder: Path) -> None:
        token = token_urlsafe(32)
        self.secret = folder / "token"
        self.secret.write_text(token)
        entry = {
            "sha256": hashlib.sha256(token.encode()).hexdigest(),
            "principal": "tester",
            "tenant": "testers",
            "roles": ["evaluator"],
        }
        self.callers = {"tokens.json": json.dumps({"tokens": [entry]})}
