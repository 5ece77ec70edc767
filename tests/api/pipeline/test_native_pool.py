"""Native threads: nothing changes without gevent, and under gevent the event loop goes on."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from api.pipeline.native_pool import NativePool


def run_patched(program: str) -> str:
    """What `program` prints in a process that gevent has patched."""
    patched = "from gevent import monkey\nmonkey.patch_all()\n" + program
    done = subprocess.run([sys.executable, "-c", patched], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_without_gevent_a_call_runs_where_it_is() -> None:
    assert NativePool(1).run(threading.get_ident) == threading.get_ident()


def test_without_gevent_an_error_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        NativePool(1).run(lambda: 1 // 0)


def test_under_gevent_other_greenlets_run_during_a_call_and_no_more_calls_than_threads() -> None:
    program = """
import gevent
from gevent._threading import Lock
from gevent.monkey import get_original
from api.pipeline.native_pool import NativePool
sleep = get_original("time", "sleep")
pool, running, most = NativePool(2), [], []
def work():
    running.append(1)
    most.append(len(running))
    sleep(0.2)
    running.pop()
calls = [gevent.spawn(pool.run, work) for _ in range(6)]
ticks = 0
while not all(call.ready() for call in calls):
    gevent.sleep(0.01)
    ticks += 1
print(max(most), len(most), ticks > 1)
"""
    assert run_patched(program) == "2 6 True\n"


def test_under_gevent_errors_come_through_without_a_trace_on_stderr() -> None:
    program = """
from api.errors import bad_request
from api.errors import ApiError
from api.pipeline.native_pool import NativePool
def refuse():
    raise bad_request("no", "messages")
try:
    NativePool(1).run(refuse)
except ApiError as error:
    print(error.status, error.param)
"""
    assert run_patched(program) == "400 messages\n"


def test_under_gevent_many_chats_are_encoded_at_once_and_all_alike(smollm2_folder: Path) -> None:
    program = f"""
import gevent
from api.pipeline.messages import Message
from api.pipeline.native_pool import NativePool
from api.pipeline.tokenizer import ModelTokenizer
tokenizer = ModelTokenizer.load({str(smollm2_folder)!r}, NativePool(2))
chats = [[Message(role="user", content=text * 200)] for text in ("Hello ", "<|im_end|>")]
calls = [[gevent.spawn(tokenizer.encode_chat, chat, 8192) for chat in chats] for _ in range(8)]
print([len({{tuple(call.get(timeout=60)) for call in same}}) for same in zip(*calls)])
print(len(calls[0][0].get()), calls[0][1].get().count(2))
"""
    assert run_patched(program) == "[1, 1]\n231 2\n"


def test_a_forked_process_has_threads_of_its_own() -> None:
    program = """
import os
from api.pipeline.native_pool import NativePool
pool = NativePool(1)
pool.run(lambda: None)
child = os.fork()
if child == 0:
    print(pool.run(lambda: "in the child"), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(pool.run(lambda: "in the parent"))
"""
    assert run_patched(program) == "in the child\nin the parent\n"
