"""Grammars are made for trial in another process, within bounds of time and memory that are put to an end there."""

import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable

from api.errors import unavailable
from api.pipeline import grammar_trial_server
from api.pipeline.grammar_trial_server import HEADER, LIMIT, NO_PROBLEM

TOO_COMPLEX = "it is too complex"
QUICK_S, SLOW_S = 0.25, 2.0  # CPU time. What takes longer at the worker holds up others that follow grammars there
MAX_WAIT_S = 15.0  # for those before, and for a machine that is busy
_START_S = 60.0


class GrammarTrials:
    """One trial at a time, and beside it one of those that take long, so that the quick ones wait for no slow one."""

    def __init__(self, tokenizer_json: Callable[[], str], vocab_size: int, slow_s: float = SLOW_S) -> None:
        self._tokenizer_json = tokenizer_json
        self._vocab_size = vocab_size
        self._lanes = [(QUICK_S, threading.Lock()), (slow_s, threading.Lock())]
        self._starting = threading.Lock()
        self._owner: tuple[int, socket.socket] | None = None

    def problem(self, grammar: str) -> str:
        """What is wrong with it; empty if nothing is. Raises ApiError 503 when others keep this waiting too long."""
        for limit_s, lane in self._lanes:
            if not lane.acquire(timeout=MAX_WAIT_S):
                raise unavailable("Too many new grammars are being checked. Please try again.", 1.0)
            try:
                found = self._try(grammar.encode(), limit_s)
            finally:
                lane.release()
            if found is not None:
                return found
        return TOO_COMPLEX

    def _try(self, grammar: bytes, limit_s: float) -> str | None:
        """None when it takes more time or memory than it may."""
        own, theirs = socket.socketpair()
        with own:
            with theirs:
                self._send(LIMIT.pack(round(limit_s * 1000)), theirs)
            own.settimeout(MAX_WAIT_S)
            try:
                own.sendall(grammar)
                own.shutdown(socket.SHUT_WR)
                with own.makefile("rb") as told:
                    answer = told.read()
            except (BrokenPipeError, ConnectionResetError):
                return None
            except TimeoutError as error:
                raise unavailable("This server is too busy to check a grammar. Please try again.", 1.0) from error
        return answer.removeprefix(NO_PROBLEM)[1:].decode() if answer else None

    def _send(self, limit: bytes, trial: socket.socket) -> None:
        try:
            socket.send_fds(self._server(), [limit], [trial.fileno()])
        except OSError:  # the process has been ended, as by a kernel short of memory
            self._owner = None
            socket.send_fds(self._server(), [limit], [trial.fileno()])

    def _server(self) -> socket.socket:
        """Of this process: one that was started before a fork belongs to the parent."""
        with self._starting:
            if self._owner is None or self._owner[0] != os.getpid():
                self._owner = (os.getpid(), self._started())
            return self._owner[1]

    def _started(self) -> socket.socket:
        """A new server, which ends when its socket is closed."""
        own, theirs = socket.socketpair()
        weakref.finalize(self, own.close)
        with theirs:
            command = [sys.executable, "-m", grammar_trial_server.__name__]
            os.posix_spawn(
                sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
            )
        told = self._tokenizer_json().encode()
        own.settimeout(_START_S)
        own.sendall(HEADER.pack(len(told), self._vocab_size) + told)
        own.recv(len(NO_PROBLEM))
        return own
