"""The volumes of a pod, as folders: configuration, secrets, certificates, room to write."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from tests.k8s.rendered import Pod, Rendering
from tests.support.certificates import Authority, Certificate

Secrets = Mapping[str, Mapping[str, str]]
"""Values by the name of the Secret and the key."""


class CertificateVolume:
    """A certificate as cert-manager's CSI driver and the kubelet put it there: tls.crt, tls.key and ca.crt
    are links through one folder, and a renewal turns that one link.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir(parents=True)
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(Path("..data") / name)

    def put(self, certificate: Certificate, authorities: Iterable[Path]) -> None:
        """Replaces all three files at once."""
        self._count += 1
        made = self._folder / f"..{self._count}"
        made.mkdir()
        shutil.copyfile(certificate.certificate, made / "tls.crt")
        shutil.copyfile(certificate.private_key, made / "tls.key")
        (made / "ca.crt").write_bytes(b"".join(file.read_bytes() for file in authorities))
        turned = self._folder / "..turning"
        turned.symlink_to(made.name)
        turned.rename(self._folder / "..data")

    @property
    def authorities(self) -> Path:
        """The file of the trusted authorities."""
        return self._folder / "ca.crt"


class Volumes:
    """The volumes of one pod below a folder, which is not where the manifest mounts them.

    Attributes:
        certificate: The certificate's volume, where the pod has one.
    """

    def __init__(self, folder: Path, pod: Pod, rendering: Rendering, secrets: Secrets) -> None:
        self._places = {
            mount["mountPath"]: str(folder / mount["name"]) for mount in pod.container["volumeMounts"]
        }
        self.certificate: CertificateVolume | None = None
        for volume in pod.spec["volumes"]:
            place = folder / volume["name"]
            if volume.get("csi", {}).get("driver") == "csi.cert-manager.io":
                self.certificate = CertificateVolume(place)
                continue
            place.mkdir(parents=True)
            for name, text in _files(volume, rendering, secrets).items():
                (place / name).write_text(self.relocate(text), encoding="utf-8")

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
