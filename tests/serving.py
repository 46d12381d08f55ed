"""A server of HTTP on this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[int]:
    """The port of a server that answers each GET so."""
    methods = {"do_GET": answer, "log_message": lambda *_: None}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Answer", (BaseHTTPRequestHandler,), methods)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
