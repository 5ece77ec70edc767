"""API keys and tenants."""

import pytest

from api.auth import ApiKeys, parse_api_keys
from tests.api.pipeline.refusals import facts_of
from worker.protocol.configuration import BadSetting

WRONG = (401, None, "invalid_api_key")


@pytest.fixture
def keys() -> ApiKeys:
    return parse_api_keys(" sk-one , sk-two=acme,sk=3=b.e_t-a, ")


@pytest.mark.parametrize("authorization", [None, "", "Bearer whatever", "Basic eA=="])
def test_without_keys_the_server_is_open(authorization: str | None) -> None:
    assert parse_api_keys("").tenant_of(authorization) == "default"


@pytest.mark.parametrize("text", [" ", ",", " , "])
def test_a_setting_that_holds_no_key_does_not_open_the_server(text: str) -> None:
    with pytest.raises(BadSetting, match=r"^HEADRACE_API_KEYS: holds no key"):
        parse_api_keys(text)


@pytest.mark.parametrize(
    ("authorization", "tenant"),
    [
        ("Bearer sk-one", "default"),
        ("Bearer sk-two", "acme"),
        ("bearer  sk-two ", "acme"),
        ("Bearer sk=3", "b.e_t-a"),
    ],
)
def test_a_key_names_its_tenant(keys: ApiKeys, authorization: str, tenant: str) -> None:
    assert keys.tenant_of(authorization) == tenant


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "sk-one",
        "Basic sk-one",
        "Bearer sk-on",
        "Bearer sk-one2",
        "Bearer SK-ONE",
        "Bearer sk-two=acme",
        "Bearer acme",
        "Bearer sk-one, Bearer sk-two",
        "Bearer \udcff",
        "Bearer " + "x" * 100_000,
    ],
)
def test_any_other_header_is_unauthorized(keys: ApiKeys, authorization: str | None) -> None:
    assert facts_of(lambda: keys.tenant_of(authorization)) == WRONG


def test_a_websocket_may_carry_its_key_in_the_url(keys: ApiKeys) -> None:
    assert keys.tenant_of(None, "sk-two") == "acme"
    assert facts_of(lambda: keys.tenant_of(None, "sk-three")) == WRONG
    assert facts_of(lambda: keys.tenant_of(None, "")) == WRONG


def test_a_header_counts_before_the_url(keys: ApiKeys) -> None:
    assert facts_of(lambda: keys.tenant_of("Bearer wrong", "sk-two")) == WRONG


@pytest.mark.parametrize(
    "text", ["sk-secret=", "=acme", "sk-secret=bad tenant", "a,sk-secret={x}", "sk-secret,sk-secret", "sk-secreté"]
)
def test_a_malformed_setting_is_refused_without_showing_the_key(text: str) -> None:
    with pytest.raises(BadSetting, match="HEADRACE_API_KEYS") as info:
        parse_api_keys(text)
    assert "sk-secret" not in str(info.value)


def test_keys_do_not_show_in_a_representation(keys: ApiKeys) -> None:
    assert repr(keys) == "ApiKeys()"
