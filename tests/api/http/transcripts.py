"""Streams as text, with what differs from run to run replaced."""

import re

from tests.api.http.client import Json, post
from tests.stack import WebServer


def transcript(server: WebServer, path: str, body: Json, **headers: str) -> str:
    """The body of a stream, which has one id and one time in all of it."""
    response = post(server, path, {**body, "stream": True}, **headers)
    assert response.status_code == 200
    return anonymous(response.text)


def anonymous(text: str) -> str:
    assert len(set(re.findall(r'"id":"([^"]*)"', text))) == 1
    assert len(set(re.findall(r'"created":(\d+)', text))) == 1
    text = re.sub(r'"cached_tokens":\d+', '"cached_tokens":0', text)  # depends on what was asked before
    text = re.sub(r'"created":\d+', '"created":0', text)
    text = re.sub(r"-?\d+\.\d+(e-?\d+)?", _rounded, text)  # of log-probabilities, machines differ in the last digits
    return re.sub(r'"id":"(chatcmpl|cmpl)-(reciter|tiny)-[0-9a-f]{32}"', '"id":"ID"', text)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}"
