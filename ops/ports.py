"""Questions to the machine about TCP ports."""

import random
import socket

# Below those that Linux and macOS give to outgoing connections: none of these can take such a port
# between its choice and its server's start, or while that server starts again.
_SERVER_PORTS = range(16384, 32768)
_NUM_TRIES = 64


def is_port_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. A listener that shares its port (SO_REUSEPORT) also counts as taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a former server that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


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
