"""An API server of Kubernetes, played: discovery, objects, server-side apply, schemas and immutable fields.

Helm and kubectl work with it as with a real one. Nothing runs behind it: Deployments are available at once,
pods of Helm's tests succeed, and a Certificate gets its Secret, which outlives it, as cert-manager has it.
Admission, defaults, CEL and quotas are missing.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import yaml
from kubernetes_validate import utils

OLDEST, NEWEST = "1.31", "1.36"
"""The versions of Kubernetes that the manifests are for; the server is of the newest."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, where the package has it, is ten times as fast."""
Object = dict[str, Any]
Key = tuple[str, str, str, str]
"""An object's group and version, resource, namespace and name."""

KINDS: Mapping[str, Mapping[str, str]] = {
    "v1": {"namespaces": "Namespace", "configmaps": "ConfigMap", "secrets": "Secret", "services": "Service",
           "serviceaccounts": "ServiceAccount", "persistentvolumeclaims": "PersistentVolumeClaim",
           "pods": "Pod"},
    "apps/v1": {"deployments": "Deployment", "replicasets": "ReplicaSet"},
    "batch/v1": {"jobs": "Job"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "cert-manager.io/v1": {"issuers": "Issuer", "certificates": "Certificate"},
    "postgresql.cnpg.io/v1": {"clusters": "Cluster", "scheduledbackups": "ScheduledBackup"},
    "keda.sh/v1alpha1": {"scaledobjects": "ScaledObject", "triggerauthentications": "TriggerAuthentication"},
    "monitoring.coreos.com/v1": {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"},
    "gateway.networking.k8s.io/v1": {"gateways": "Gateway", "grpcroutes": "GRPCRoute",
                                     "backendtlspolicies": "BackendTLSPolicy"},
    "gateway.envoyproxy.io/v1alpha1": {"backendtrafficpolicies": "BackendTrafficPolicy"},
}  # fmt: skip
"""The kinds by group and version and by resource."""
IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("selector",),
    "Service": ("clusterIP",),
    "PersistentVolumeClaim": ("accessModes", "storageClassName", "volumeName"),
    "Job": ("template", "selector", "completionMode"),
}
"""The fields of ``spec`` that an update may not change."""
_PROTOBUF = b"k8s\0"
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?$"
)


# The package reads its definitions, some megabytes, anew for every object.
utils.schema_contents = functools.cache(utils.schema_contents)


@functools.cache
def fault(found: str, version: str) -> str:
    """What is wrong with an object, given as JSON. Custom resources have no schema here."""
    value = json.loads(found)
    try:
        kubernetes_validate.validate(value, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        custom = "." in value["apiVersion"].split("/")[0]
        return "" if custom else f"Kubernetes {version} has no {value['apiVersion']} {value['kind']}"
    except kubernetes_validate.ValidationError as error:
        return f"Kubernetes {version}: {error.message}"
    return ""


class RefusedError(Exception):
    """A request that the server refuses, with its status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Kubernetes:
    """The objects of a cluster.

    Attributes:
        address: The URL of the server.
        refused: What was refused, except for objects that are not there.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.refused: list[str] = []
        self._lock = threading.Lock()
        self._objects: dict[Key, Object] = {}
        self._applied: dict[Key, dict[str, Object]] = {}
        self._revision = 0

    @property
    def objects(self) -> list[Object]:
        """All objects."""
        with self._lock:
            return copy.deepcopy(list(self._objects.values()))

    def one(self, kind: str, name: str) -> Object:
        """The object of a kind and name, in whatever namespace."""
        (found,) = [one for one in self.objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
        return found

    def kubeconfig(self, namespace: str = "default") -> str:
        """A kubeconfig for it."""
        context = {"cluster": "played", "user": "played", "namespace": namespace}
        return yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "played",
            "clusters": [{"name": "played", "cluster": {"server": self.address}}],
            "contexts": [{"name": "played", "context": context}],
            "users": [{"name": "played", "user": {}}],
        })  # fmt: skip

    def answer(self, method: str, url: str, media_type: str, body: bytes) -> Object:
        """What a request is answered with.

        Raises:
            RefusedError: The request is refused.
        """
        split = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        if method == "GET" and (found := _discovery(split.path)) is not None:
            return found
        match = _PATH.fullmatch(split.path)
        group = f"{match['group']}/{match['version']}" if match and match["group"] else "v1"
        if match is None or match["resource"] not in KINDS.get(group, {}):
            raise RefusedError(
                404, "NotFound", f"the server could not find the requested resource {split.path}"
            )
        kind = KINDS[group][match["resource"]]
        key = (group, match["resource"], match["namespace"] or "", match["name"] or "")
        given = {} if not body or method == "DELETE" else _parsed(body)
        with self._lock:
            if method == "GET":
                return self._get(key) if match["name"] else self._list(key, kind, query)
            if method == "DELETE":
                return self._delete(key)
            if method == "POST":
                key = (*key[:3], given["metadata"]["name"])
                if key in self._objects:
                    raise RefusedError(409, "AlreadyExists", f"{kind} {key[3]} already exists")
            elif method == "PATCH" and "apply-patch" in media_type:
                applied = self._applied.setdefault(key, {})
                applied[query["fieldManager"]] = given
                merged: Object = {}
                for one in applied.values():
                    merged = _merged(merged, one)
                given = merged
            elif method == "PATCH":
                given = _merged(self._get(key), given)
            return self._write(key, kind, given, keep="dryRun" not in query)

    def _get(self, key: Key) -> Object:
        if key not in self._objects:
            raise RefusedError(404, "NotFound", f'{key[1]} "{key[3]}" not found')
        return self._objects[key]

    def _list(self, key: Key, kind: str, query: Mapping[str, str]) -> Object:
        wanted = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
        items = [
            found
            for place, found in self._objects.items()
            if place[:2] == key[:2]
            and key[2] in {"", place[2]}
            and wanted.items() <= found["metadata"].get("labels", {}).items()
        ]
        return {
            "apiVersion": key[0],
            "kind": f"{kind}List",
            "metadata": {"resourceVersion": "1"},
            "items": items,
        }

    def _delete(self, key: Key) -> Object:
        found = self._get(key)
        del self._objects[key]
        self._applied.pop(key, None)
        return found

    def _write(self, key: Key, kind: str, given: Object, *, keep: bool) -> Object:
        given = copy.deepcopy(given)
        metadata = given.setdefault("metadata", {})
        for field in ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"):
            metadata.pop(field, None)
        given.pop("status", None)
        if key[2]:
            metadata.setdefault("namespace", key[2])
            if ("v1", "namespaces", "", key[2]) not in self._objects:
                raise RefusedError(404, "NotFound", f'namespaces "{key[2]}" not found')
        if wrong := fault(json.dumps(given, sort_keys=True), NEWEST):
            raise RefusedError(422, "Invalid", f"{kind} {key[3]}: {wrong}")
        before = self._objects.get(key)
        for field in IMMUTABLE.get(kind, ()) if before else ():
            if before and before["spec"].get(field) != given["spec"].get(field):
                raise RefusedError(422, "Invalid", f"{kind} {key[3]}: spec.{field} is immutable")
        metadata |= {
            "uid": before["metadata"]["uid"] if before else str(uuid.uuid4()),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": before["metadata"]["resourceVersion"] if before else "",
            "generation": 1,
        }
        if status := _status(kind, given):
            given["status"] = status
        if keep and given != before:
            self._revision += 1
            metadata["resourceVersion"] = str(self._revision)
            self._objects[key] = given
            if kind == "Certificate":
                self._certify(key, given["spec"]["secretName"])
        return given

    def _certify(self, key: Key, name: str) -> None:
        values = {
            entry: base64.b64encode(f"{entry} of {name}".encode()).decode()
            for entry in ("tls.crt", "tls.key", "ca.crt")
        }
        metadata = {"name": name, "namespace": key[2]}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": values}
        self._objects.setdefault(("v1", "secrets", key[2], name), secret)


def _parsed(body: bytes) -> Object:
    """JSON, YAML, or a Secret in protocol buffers, as typed clients send it."""
    if not body.startswith(_PROTOBUF):
        found: Object = yaml.load(body, LOADER)
        return found
    envelope = dict(_fields(body.removeprefix(_PROTOBUF)))
    kind = {number: value.decode() for number, value in _fields(envelope[1])}
    assert kind == {1: "v1", 2: "Secret"}, kind
    data: dict[str, str] = {}
    labels: dict[str, str] = {}
    secret: dict[int, bytes] = {}
    for number, value in _fields(envelope[2]):
        if number == 2:
            name, content = dict(_fields(value)).get(1, b""), dict(_fields(value)).get(2, b"")
            data[name.decode()] = base64.b64encode(content).decode()
        else:
            secret[number] = value
    metadata = {"name": dict(_fields(secret[1]))[1].decode(), "labels": labels}
    for number, value in _fields(secret[1]):
        if number == 11:
            entry = dict(_fields(value))
            labels[entry[1].decode()] = entry[2].decode()
    kind_of = secret.get(3, b"Opaque").decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind_of, "data": data}


def _fields(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length."""
    place = 0

    def number() -> int:
        nonlocal place
        found, shift = 0, 0
        while True:
            byte = raw[place]
            place, found, shift = place + 1, found | (byte & 127) << shift, shift + 7
            if byte < 128:
                return found

    while place < len(raw):
        tag, length = number(), number()
        if tag & 7 == 2:
            yield tag >> 3, raw[place : place + length]
            place += length


def _merged(base: Object, over: Object) -> Object:
    """Objects of both; a value of None removes its field. Lists replace lists, but for what a patch names.

    A strategic patch says by ``$setElementOrder/LIST`` that it has the changed entries of a list alone.
    """
    found = copy.deepcopy(base)
    for name, value in over.items():
        if name.startswith("$"):
            continue
        if f"$setElementOrder/{name}" in over:
            known = {entry["name"]: entry for entry in found.get(name, [])}
            changed = {entry["name"]: entry for entry in value}
            order = [entry["name"] for entry in over[f"$setElementOrder/{name}"]]
            found[name] = [_merged(known.get(one, {}), changed.get(one, {})) for one in order]
        elif value is None:
            found.pop(name, None)
        elif isinstance(value, dict) and isinstance(found.get(name), dict):
            found[name] = _merged(found[name], value)
        else:
            found[name] = copy.deepcopy(value)
    return found


def _status(kind: str, given: Object) -> Object:
    """What a cluster would soon say of an object."""
    if kind == "Deployment":
        count = given["spec"].get("replicas", 1)
        names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        conditions = [{"type": "Available", "status": "True"}]
        return {"observedGeneration": 1, "conditions": conditions, **dict.fromkeys(names, count)}
    if kind in {"Pod", "PersistentVolumeClaim"}:
        return {"phase": "Succeeded" if kind == "Pod" else "Bound"}
    return {"phase": "Active"} if kind == "Namespace" else {}


def _discovery(path: str) -> Object | None:
    """What a client learns of the server."""
    groups = {group.partition("/")[0] for group in KINDS if "/" in group}
    if path == "/version":
        return {"major": "1", "minor": NEWEST.partition(".")[2], "gitVersion": f"v{NEWEST}.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        found = [
            {
                "name": group,
                "versions": [
                    {"groupVersion": one, "version": one.partition("/")[2]}
                    for one in KINDS
                    if one.startswith(f"{group}/")
                ],
            }
            for group in sorted(groups)
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
    if path == "/openapi/v3":
        urls = {
            (f"apis/{group}" if "/" in group else "api/v1"): {"serverRelativeURL": f"/openapi/v3/{group}"}
            for group in KINDS
        }
        return {"paths": urls}
    group = path.removeprefix("/openapi/v3/")
    if group in KINDS:
        return {
            "openapi": "3.0.0",
            "info": {"title": "played", "version": NEWEST},
            "paths": _operations(group),
        }
    group = path.removeprefix("/apis/").removeprefix("/api/")
    if group not in KINDS:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    resources = [
        {
            "name": resource,
            "singularName": kind.lower(),
            "namespaced": kind != "Namespace",
            "kind": kind,
            "verbs": verbs,
        }
        for resource, kind in KINDS[group].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": group, "resources": resources}


def _operations(group: str) -> Object:
    """That the server itself checks the fields of what is sent."""
    name, _, version = group.rpartition("/")
    parameters = [{"name": "fieldValidation", "in": "query"}]
    return {
        f"/{resource}": {
            "patch": {
                "parameters": parameters,
                "x-kubernetes-group-version-kind": {"group": name, "version": version, "kind": kind},
            }
        }
        for resource, kind in KINDS[group].items()
    }


@contextmanager
def kubernetes() -> Iterator[Kubernetes]:
    """Runs the server on a free port."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave in one packet: the client acknowledges a head alone 40 ms later.
        wbufsize = 1 << 16

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                code, found = (
                    200,
                    played.answer(self.command, self.path, self.headers.get("Content-Type", ""), body),
                )
                code = 201 if self.command == "POST" else 200
            except RefusedError as error:
                code = error.code
                if code != 404:
                    played.refused.append(str(error))
                found = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(error),
                         "reason": error.reason, "code": code}  # fmt: skip
            if "watch=true" in self.path and code == 200:
                self._watch(found)
                return
            payload = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def _watch(self, listed: Object) -> None:
            """Tells what there is. Nothing changes while somebody waits, so nothing follows until the end."""
            events = [{"type": "ADDED", "object": one} for one in listed["items"]]
            metadata = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
            kind = listed["kind"].removesuffix("List")
            bookmark = {"apiVersion": listed["apiVersion"], "kind": kind, "metadata": metadata}
            events.append({"type": "BOOKMARK", "object": bookmark})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write("".join(f"{json.dumps(event)}\n" for event in events).encode())
            self.wfile.flush()
            ended.wait()

        def log_message(self, *_: Any) -> None:
            pass

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    played = Kubernetes(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield played
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
