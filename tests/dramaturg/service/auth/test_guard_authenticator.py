""""""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from dramaturg.service.auth.guard import (
    MOST_TOKENS,
    Identities,
    StaticTokens,
    UnauthenticatedError,
    WebTokens,
)
from dramaturg.service.auth.settings import AuthSettings, IdentityGrant
from dramaturg.service.settings import SettingsError

SHA256 = hashlib.sha256(b"t0ken").hexdigest()
TOML = f"""
[[tokens]]
sha256 = "{SHA256}"
principal = "ci@team-a"
tenant = "team-a"
roles = ["viewer", "evaluator"]
expires = {{expires}}
"""


def written(folder: Path, text: str, name: str = "tokens.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def test_a_token_is_found_by_its_hash(tmp_path: Path) -> None:
    tokens = StaticTokens(written(tmp_path, TOML.format(expires=in_an_hour())))
    caller = tokens.find("t0ken")
    assert caller is not None
    assert (caller.principal, caller.tenant) == ("ci@team-a", "team-a")
    assert caller.roles == {"viewer", "evaluator"}
    assert tokens.find("t0ken ") is None
    assert tokens.find(SHA256) is None, "the hash is as good as the token"


@given(st.text().filter(lambda text: text != "t0ken"))
def test_no_other_text_is_a_token(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "tokens.toml"
    file.write_text(TOML.format(expires=in_an_hour()))
    assert StaticTokens(file).find(text) is None


def test_a_token_ends(tmp_path: Path) -> None:
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    with pytest.raises(UnauthenticatedError, match="expired"):
        StaticTokens(written(tmp_path, TOML.format(expires=past))).find("t0ken")


def test_a_token_that_is_taken_out_is_refused_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, TOML.format(expires=in_an_hour()))
    tokens = StaticTokens(file)
    assert tokens.find("t0ken")
    file.write_text("tokens = []")
    os.utime(file, ns=(0, 1))
    assert tokens.find("t0ken") is None


def test_a_file_that_is_half_written_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path, TOML.format(expires=in_an_hour()))
    tokens = StaticTokens(file)
    file.write_text('[[tokens]]\nsha256 = "secret')
    os.utime(file, ns=(0, 1))
    assert tokens.find("t0ken")
    assert "could not be read again" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"sha256": "t0ken-in-the-clear"}, "sha256"),
        ({"roles": ["emperor"]}, "none of the roles"),
        ({"roles": []}, "roles"),
        ({"tenant": ""}, "no tenant"),
        ({"tenant": "Team A"}, "tenant"),
        ({"principal": "two words"}, "principal"),
        ({"expires": "2030-01-01T00:00:00"}, "expires"),
        ({"expiry": "2030-01-01T00:00:00Z"}, "expiry"),
    ],
)
def test_an_entry_that_is_wrong_is_named_without_its_value(
    tmp_path: Path, change: dict[str, object], wrong: str
) -> None:
    entry = {"sha256": SHA256, "principal": "a", "tenant": "team-a", "roles": ["viewer"], **change}
    file = written(tmp_path, json.dumps({"tokens": [entry]}), "tokens.json")
    with pytest.raises(SettingsError) as raised:
        StaticTokens(file)
    assert wrong in str(raised.value)
    assert str(file) in str(raised.value)
    assert "t0ken-in-the-clear" not in str(raised.value)


def test_a_service_goes_without_a_tenant(tmp_path: Path) -> None:
    entry = {"sha256": SHA256, "principal": "gateway", "roles": ["service"]}
    caller = StaticTokens(written(tmp_path, json.dumps({"tokens": [entry]}), "t.json")).find("t0ken")
    assert caller is not None
    assert caller.tenant == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.json", "{secret"), ("t.toml", "secret = "), ("t.json", '["secret"]'), ("t.toml", "x = 1")],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=name) as raised:
        StaticTokens(written(tmp_path, text, name))
    assert "secret" not in str(raised.value)


def test_there_are_bounds(tmp_path: Path) -> None:
    entries = [
        {"sha256": f"{number:064x}", "principal": f"p{number}", "tenant": "a", "roles": ["viewer"]}
        for number in range(MOST_TOKENS + 1)
    ]
    with pytest.raises(SettingsError, match=f"{MOST_TOKENS}"):
        StaticTokens(written(tmp_path, json.dumps({"tokens": entries}), "t.json"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml cannot be read"):
        StaticTokens(tmp_path / "absent.toml")


ISSUER, AUDIENCE = "https://issuer.example", "dramaturg"
Jwk = dict[str, Any]

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
KEYS: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}


def public(algorithm: str, key: Any = None, **members: Any) -> Jwk:
    made = (key or KEYS[algorithm]).public_key()
    kind: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}[algorithm]
    found: Jwk = json.loads(kind.to_jwk(made))
    return {**found, "kid": algorithm, **members}


def claims(**changed: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    every = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": now + timedelta(minutes=5),
        "tenant": "team-a",
        "roles": ["evaluator"],
    }
    return {name: value for name, value in {**every, **changed}.items() if value is not None}


def signed(algorithm: str = "RS256", key: Any = None, kid: str | None = "", **changed: Any) -> str:
    headers = {} if kid is None else {"kid": kid or algorithm}
    return jwt.encode(claims(**changed), key or KEYS[algorithm], algorithm, headers=headers)


Make = Callable[..., WebTokens]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes what checks tokens, with a file of these keys."""

    def made(*keys: Jwk, **changed: Any) -> WebTokens:
        file = tmp_path / "jwks.json"
        file.write_text(json.dumps({"keys": keys or [public(name) for name in KEYS]}))
        settings = AuthSettings(
            **{"jwks_file": file, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, **changed}
        )
        return WebTokens(file, settings, Identities(settings.identities))

    return made


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_good_token_identifies_the_caller(make: Make, algorithm: str) -> None:
    caller = make().find(signed(algorithm))
    assert (caller.principal, caller.tenant, caller.roles) == ("alice", "team-a", frozenset({"evaluator"}))


def test_the_claims_have_the_names_that_the_issuer_gives_them(make: Make) -> None:
    names = {"jwt_principal_claim": "azp", "jwt_tenant_claim": "org", "jwt_roles_claim": "scope"}
    caller = make(**names).find(signed(azp="robot", org="team-b", scope="openid viewer", roles=["operator"]))
    assert (caller.principal, caller.tenant, caller.roles) == ("robot", "team-b", frozenset({"viewer"}))


def test_a_token_without_roles_has_those_of_its_principal(make: Make) -> None:
    grants = [IdentityGrant(pattern="system:serviceaccount:{tenant}:*", roles=("evaluator",))]
    tokens = make(identities=grants)
    caller = tokens.find(signed(sub="system:serviceaccount:team-c:ci", roles=None, tenant="team-a"))
    assert (caller.tenant, caller.roles) == ("team-c", frozenset({"evaluator"})), (
        "the pattern decides, not the token"
    )
    with pytest.raises(UnauthenticatedError):
        tokens.find(signed(sub="somebody", roles=None))


PAST = datetime.now(UTC) - timedelta(minutes=5)

WRONG: dict[str, Callable[[], str]] = {
    "expired": lambda: signed(exp=PAST),
    "without an end": lambda: signed(exp=None),
    "not yet good": lambda: signed(nbf=datetime.now(UTC) + timedelta(minutes=5)),
    "for somebody else": lambda: signed(aud="another"),
    "for nobody": lambda: signed(aud=None),
    "of another issuer": lambda: signed(iss="https://evil.example"),
    "of no issuer": lambda: signed(iss=None),
    "of nobody": lambda: signed(sub=None),
    "of nobody with a name": lambda: signed(sub=""),
    "for a tenant that is no name": lambda: signed(tenant="../team-a"),
    "for a tenant that is no text": lambda: signed(tenant=["team-a"]),
    "for no tenant": lambda: signed(tenant=None),
    "signed by a stranger": lambda: signed("ES256", ec.generate_private_key(ec.SECP256R1())),
    "under a key that is not there": lambda: signed(kid="other"),
    "under the key of another algorithm": lambda: signed("ES256", kid="RS256"),
    "not signed": lambda: jwt.encode(claims(), "", "none", headers={"kid": "RS256"}),
    "signed with the public key as a secret": lambda: with_public_key(),
    "no token": lambda: "a.b.c",
    "empty": lambda: "..",
}


def with_public_key() -> str:
    """The attack that takes the public key, which everybody has, for an HMAC secret."""

    def encoded(part: bytes) -> bytes:
        return base64.urlsafe_b64encode(part).rstrip(b"=")

    header = encoded(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "RS256"}).encode())
    end = int(claims()["exp"].timestamp())
    body = header + b"." + encoded(json.dumps({**claims(), "exp": end}).encode())
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return (body + b"." + encoded(hmac.new(secret, body, hashlib.sha256).digest())).decode()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_token_is_refused(make: Make, wrong: str) -> None:
    token = WRONG[wrong]()
    with pytest.raises(UnauthenticatedError) as raised:
        make().find(token)
    assert token not in str(raised.value) or len(token) < 3
    assert "alice" not in str(raised.value)


def test_clocks_may_differ_a_little(make: Make) -> None:
    late = datetime.now(UTC) - timedelta(seconds=10)
    assert make().find(signed(exp=late)).principal == "alice"
    with pytest.raises(UnauthenticatedError):
        make(jwt_leeway_seconds=0).find(signed(exp=late))


def test_unknown_roles_are_ignored(make: Make) -> None:
    assert make().find(signed(roles=["admin", "viewer", 7])).roles == {"viewer"}
    assert make().find(signed(roles={"service": True})).roles == frozenset()


def test_an_algorithm_that_is_not_allowed_is_refused(make: Make) -> None:
    tokens = make(jwt_algorithms=["ES256"])
    assert tokens.find(signed("ES256")).principal == "alice"
    with pytest.raises(UnauthenticatedError):
        tokens.find(signed("RS256"))


def test_without_a_key_id_the_only_key_that_fits_is_taken(make: Make) -> None:
    assert make().find(signed("EdDSA", kid=None)).principal == "alice"
    second = public("EdDSA", ed25519.Ed25519PrivateKey.generate(), kid="second")
    with pytest.raises(UnauthenticatedError, match="2 keys"):
        make(public("EdDSA"), second).find(signed("EdDSA", kid=None))


def test_a_new_key_is_known_as_soon_as_it_is_in_the_file(make: Make, tmp_path: Path) -> None:
    tokens = make(public("RS256"))
    renewed = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(UnauthenticatedError):
        tokens.find(signed("ES256", renewed))
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [public("ES256", renewed)]}))
    os.utime(file, ns=(0, 1))
    assert tokens.find(signed("ES256", renewed)).principal == "alice"
    with pytest.raises(UnauthenticatedError):
        tokens.find(signed("RS256"))


def test_keys_that_must_not_be_trusted_are_refused_at_the_start(make: Make) -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(SettingsError, match="2048"):
        make(public("RS256", short))
    private: Jwk = json.loads(ECAlgorithm.to_jwk(EC))
    with pytest.raises(SettingsError, match="private") as raised:
        make(private)
    assert private["d"] not in str(raised.value)
    with pytest.raises(SettingsError, match="no key"):
        make({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": [7]}', '{"keys": [{"kty": "RSA", "n": "secret"}]}']
)
def test_a_file_that_is_no_key_set_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(text)
    settings = AuthSettings(jwks_file=file, jwt_issuer=ISSUER, jwt_audience=AUDIENCE)
    with pytest.raises(SettingsError, match=r"jwks\.json") as raised:
        WebTokens(file, settings, Identities([]))
    assert "secret" not in str(raised.value)
