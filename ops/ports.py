"""Questions to the machine about TCP ports."""

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Below those that Linux and macOS give to outgoing connections: none of these can take such a port
# between its choice and its server's start, or while that server starts again.
_SERVER_PORTS = range(16384, 32768)
_NUM_TRIES = 64


def is_port_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. A listener that shares its port (SO_REUSEPORT) also counts as taken.

    Raises OSError where `host` is no address of this machine.
    """
    with _socket(host) as probe:
        # As servers do: connections of a former server that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            return False
        return True


@contextmanager
def held(host: str, port: int) -> Iterator[None]:
    """Meanwhile the port is not free, but for servers that share it. A socket that does not listen is given nobody.

    Where connections of a former server linger, the port cannot be held, and servers can share it all the same.
    """
    with _socket(host) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with suppress(OSError):
            holder.bind((host, port))
        yield


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on at this moment. Raises OSError where no such port is found."""
    for port in random.SystemRandom().sample(_SERVER_PORTS, _NUM_TRIES):
        if is_port_free(host, port):
            return port
    raise OSError(f"no free port on {host} among {_NUM_TRIES} of {_SERVER_PORTS.start} to {_SERVER_PORTS.stop - 1}")


def is_listening(host: str, port: int) -> bool:
    """Whether a connection to the port is accepted."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
