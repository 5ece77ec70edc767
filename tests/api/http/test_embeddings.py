"""Embeddings are asked for like anything else and refused, since the models served write text."""

from typing import Any

import openai
import pytest

from tests.api.http.client import Json, error_of, post
from tests.api.http.reciter import RECITER
from tests.stack import WebServer

PATH = "/v1/embeddings"


def test_the_sdk_is_told_that_the_served_model_makes_no_embeddings(server: WebServer) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with client, pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=RECITER, input=["Where does the river rise?"])
    assert caught.value.body == {
        "message": f"The model '{RECITER}' writes text and makes no embeddings; no embedding model is served here.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_supported",
    }


@pytest.mark.parametrize("given", ["x", ["x", "y"], [1, 2], [[1], [2, 3]]])
def test_every_form_of_input_is_right_in_itself(server: WebServer, given: Any) -> None:
    error = error_of(post(server, PATH, {"model": RECITER, "input": given}))
    assert (error["param"], error["code"]) == ("model", "model_not_supported")


@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"model": "text-embedding-3-small"}, 404, "model", "model_not_found"),
        ({"model": None}, 400, "model", None),
        ({"model": 3}, 400, "model", None),
        ({"input": None}, 400, "input", None),
        ({"input": []}, 400, "input", None),
        ({"input": ["x", 3]}, 400, "input[1]", None),
        ({"input": [[1, -1]]}, 400, "input[0][1]", None),
        ({"encoding_format": "hex"}, 400, "encoding_format", None),
        ({"dimensions": 0}, 400, "dimensions", None),
    ],
)
def test_a_wrong_body_is_refused_before_the_model(
    server: WebServer, change: Json, status: int, param: str, code: str | None
) -> None:
    response = post(server, PATH, {"model": RECITER, "input": "x"} | change)
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)


def test_a_key_is_asked_for(strict: WebServer) -> None:
    assert post(strict, PATH, {"model": RECITER, "input": "x"}).status_code == 401
