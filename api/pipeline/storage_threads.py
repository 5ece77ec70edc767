"""Native threads that ask the storage, which may take its time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import fsspec.asyn
from gevent import monkey
from gevent.hub import get_hub

from api.pipeline.native_pool import NativePool, ResultT


class StorageThreads(NativePool):
    """A NativePool in which fsspec works as it does outside of gevent."""

    def run(self, call: Callable[[], ResultT]) -> ResultT:
        if monkey.is_module_patched("threading") and fsspec.asyn.loop[0] is None:
            _give_fsspec_its_thread()
        return super().run(call)


class _IoThread:
    """fsspec asks of the thread of its event loop whether it lives."""

    def is_alive(self) -> bool:
        return True


class _NativeExecutor(ThreadPoolExecutor):
    """A thread for each call: the few that an asyncio loop makes are to look up the addresses of hosts."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
            finally:
                get_hub().destroy(destroy_loop=True)

        _start_thread(work)
        return future


def _give_fsspec_its_thread() -> None:
    """fsspec talks to object stores on an asyncio loop in a thread, which as a greenlet of gevent's could never run.

    Once for each process: fsspec forgets its loop in a fork.
    """
    loop = asyncio.SelectorEventLoop(monkey.get_original("selectors", "DefaultSelector")())
    loop.set_default_executor(_NativeExecutor())
    _start_thread(loop.run_forever)
    fsspec.asyn.loop[0], fsspec.asyn.iothread[0] = loop, _IoThread()


def _start_thread(work: Callable[[], None]) -> None:
    monkey.get_original("_thread", "start_new_thread")(work, ())
