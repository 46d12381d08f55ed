"""Servers of HTTP on this machine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[int]:
    """The port of a server that answers each GET so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(ConnectionError):  # the client may leave
                answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@dataclass
class Server:
    """The served content, the server's behavior, and the requests that it received."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    conditional: bool = True  # heeds If-Range
    tag: str | None = '"one"'
    repeated_tag: bool = True  # in ranges, too
    cut_after: int | None = None  # bytes of each answer, after which the connection closes
    stall: float = 0.0  # seconds of silence before each block
    block: int = 1 << 20
    status: int | None = None
    announce: bool = True  # Content-Length
    whole: str = ""  # in place of the size in Content-Range
    shift: int = 0  # bytes by which an answered range begins elsewhere than requested
    endless: tuple[bytes, bytes] | None = None  # in place of an answer: its beginning, and what follows for ever
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        expected = request.headers.get("Range")
        self.requests.append((request.path, expected))
        if self.endless is not None:
            head, piece = self.endless
            request.wfile.write(head)
            while piece:
                time.sleep(self.stall)
                request.wfile.write(piece)
        content = self.files.get(request.path)
        if content is None or self.status is not None:
            request.send_error(self.status or 404)
            return
        start = 0
        if expected and self.ranges and (not self.conditional or request.headers.get("If-Range") in {None, self.tag}):
            start = int(expected.removeprefix("bytes=").removesuffix("-")) + self.shift
            if start >= len(content):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{self.whole or len(content)}")
        else:
            request.send_response(200)
        if self.announce:
            request.send_header("Content-Length", str(len(content) - start))
        if self.tag and (self.repeated_tag or not start):
            request.send_header("ETag", self.tag)
        request.end_headers()
        body = content[start:] if self.cut_after is None else content[start : start + self.cut_after]
        for at in range(0, len(body), self.block):
            time.sleep(self.stall)
            request.wfile.write(body[at : at + self.block])
            request.wfile.flush()
