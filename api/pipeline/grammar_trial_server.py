"""A process of its own that makes grammars to see whether they can be made: ``python -m`` this, its socket on stdin.

It is told the tokenizer and then gets a socket for each trial, which a child of its own serves. What a grammar takes
too much of, time or memory or stack, ends that child alone.
"""

import os
import resource
import signal
import socket
import struct

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

HEADER = struct.Struct("!II")  # bytes of the tokenizer, tokens of the vocabulary
LIMIT = struct.Struct("!I")  # CPU time of a trial, ms
NO_PROBLEM = b"+"
PROBLEM = b"-"  # what it is follows
MAX_MEMORY = 3 << 30  # of addresses, the tokenizer included
MAX_STACK = 4 << 20  # less than what a worker's thread has for the same grammar
MAX_PROBLEM_CHARS = 500


def main() -> None:
    """Until the other side of stdin is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a keyboard ends the whole process group, this one by its stdin
    server = socket.socket(fileno=os.dup(0))
    server.setblocking(True)  # gevent's are not
    with server.makefile("rb") as told:
        num_bytes, vocab_size = HEADER.unpack(told.read(HEADER.size))
        tokenizer = LLTokenizer(told.read(num_bytes).decode(), n_vocab=vocab_size)
    server.sendall(NO_PROBLEM)
    while True:
        limit, fds, _, _ = socket.recv_fds(server, LIMIT.size, 1)
        if not fds:
            return
        trial = socket.socket(fileno=fds[0])
        trial.setblocking(True)
        if os.fork() == 0:
            _restrict(LIMIT.unpack(limit)[0] / 1000)
            _serve(tokenizer, trial)
            os._exit(0)
        trial.close()


def _restrict(limit_s: float) -> None:
    """Of the process: beyond these limits the kernel ends it."""
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, MAX_MEMORY), (resource.RLIMIT_STACK, MAX_STACK)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    signal.setitimer(signal.ITIMER_PROF, limit_s)


def _serve(tokenizer: LLTokenizer, trial: socket.socket) -> None:
    with trial.makefile("rb") as told:
        grammar = told.read().decode()
    problem = problem_of(tokenizer, grammar)
    trial.sendall(PROBLEM + problem.encode() if problem else NO_PROBLEM)


def problem_of(tokenizer: LLTokenizer, grammar: str) -> str:
    """What is wrong with a grammar, as llguidance serializes it; empty if nothing is."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
    if not matcher.is_error():
        matcher.compute_bitmask()
    if not matcher.is_error():
        # Some have a beginning that never ends, or one of which the mask knows no tokens but those no text makes.
        matcher.consume_tokens(matcher.compute_ff_tokens())
    # Later lines show the parser's state.
    return matcher.get_error().strip().partition("\n")[0][:MAX_PROBLEM_CHARS] if matcher.is_error() else ""


if __name__ == "__main__":
    main()
