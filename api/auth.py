"""API keys: who a request belongs to."""

import hashlib
import hmac
import re
from dataclasses import dataclass, field

from api.errors import unauthorized
from worker.protocol.configuration import BadSetting

DEFAULT_TENANT = "default"
_KEY = re.compile(r"[!-~]+")  # what stands in a header as it was typed
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # stands in Redis keys and metric labels


@dataclass(frozen=True)
class ApiKeys:
    """The accepted keys, kept as digests. Without any the server is open and everyone is the default tenant."""

    tenant_by_digest: dict[bytes, str] = field(repr=False)

    def tenant_of(self, authorization: str | None, query_key: str | None = None) -> str:
        """The tenant of an Authorization header, or of the key a WebSocket client put into its URL.

        Raises ApiError 401 invalid_api_key.
        """
        if not self.tenant_by_digest:
            return DEFAULT_TENANT
        key = _bearer_token(authorization) if authorization is not None else query_key
        if not key:
            raise unauthorized("You didn't provide an API key. Send it as 'Authorization: Bearer YOUR_KEY'.")
        tenant = self._find(_digest(key))
        if tenant is None:
            raise unauthorized("Incorrect API key provided.")
        return tenant

    def _find(self, digest: bytes) -> str | None:
        """Compares with every key, so that the time taken tells nothing about any of them."""
        found = None
        for accepted, tenant in self.tenant_by_digest.items():
            if hmac.compare_digest(accepted, digest):
                found = tenant
        return found


def parse_api_keys(text: str) -> ApiKeys:
    """The setting HEADRACE_API_KEYS, "key" or "key=tenant", comma-separated. Raises BadSetting, naming no key."""
    tenant_by_digest: dict[bytes, str] = {}
    for place, entry in enumerate(filter(None, (part.strip() for part in text.split(","))), start=1):
        key, equals, tenant = entry.rpartition("=")
        key, tenant = (key, tenant) if equals else (entry, DEFAULT_TENANT)
        if not _KEY.fullmatch(key) or not _TENANT.fullmatch(tenant):
            raise BadSetting(
                f"HEADRACE_API_KEYS: entry {place} must be key or key=tenant, the key made of visible ASCII signs, "
                "the tenant of letters, digits, dot, dash and underscore"
            )
        if _digest(key) in tenant_by_digest:
            raise BadSetting(f"HEADRACE_API_KEYS: entry {place} repeats a key")
        tenant_by_digest[_digest(key)] = tenant
    if text and not tenant_by_digest:  # as where the variables of a template are empty: not meant to be open
        raise BadSetting("HEADRACE_API_KEYS: holds no key; leave it empty for a server open to everyone")
    return ApiKeys(tenant_by_digest)


def credentials(authorization: str | None, bare_key: str | None) -> str | None:
    """The Authorization header; Anthropic's clients send the key alone, as x-api-key."""
    return authorization or (None if bare_key is None else f"Bearer {bare_key}")


def _bearer_token(authorization: str) -> str | None:
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
