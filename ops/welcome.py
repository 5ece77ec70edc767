"""What a user reads once Headrace is ready."""

import json
import shlex


def answering_host(host: str) -> str:
    """An address of this machine at which a server told to listen on `host` answers."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


def url_address(host: str, port: int) -> str:
    """The same with the port, as it stands in a URL."""
    address = answering_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def curl_line(address: str, model_name: str, needs_key: bool) -> str:
    """A shell command that streams a chat from the server at `address` (host:port)."""
    question = {"role": "user", "content": "Why is the sky blue?"}
    body = {"model": model_name, "stream": True, "temperature": 0.2, "messages": [question]}
    words = ["curl", "-N", f"http://{address}/v1/chat/completions", "-H", "Content-Type: application/json"]
    if needs_key:
        words += ["-H", "Authorization: Bearer YOUR_KEY"]
    return shlex.join([*words, "-d", json.dumps(body)])


def welcome(address: str, model_name: str, needs_key: bool) -> str:
    """The text printed when everything is up."""
    return (
        f"\nHeadrace serves {model_name} at http://{address}/v1 (OpenAI's API). Try it in another terminal:\n\n"
        f"  {curl_line(address, model_name, needs_key)}\n\nCtrl-C stops everything.\n\n"
    )
