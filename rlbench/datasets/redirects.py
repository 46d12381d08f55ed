"""HTTP requests without redirects from public servers into private networks."""

from __future__ import annotations

import socket
from http.client import HTTPMessage, HTTPResponse
from ipaddress import ip_address
from typing import IO
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rlbench.errors import RefusedFile


class PublicRedirects(HTTPRedirectHandler):
    """Follow a redirect to a private address only from a private address, as of a mirror."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Return the redirected request.

        Raises:
            RefusedFile: it leads from a public address to a private one.
        """
        host = urlsplit(newurl).hostname or ""
        if private(host) and not private(urlsplit(f"//{req.origin_req_host}").hostname or ""):
            raise RefusedFile(f"{req.full_url}: redirects to {host}, an address of a private network; choose a mirror")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def urlopen(request: Request, timeout: float) -> HTTPResponse:
    """Open a request, following the redirects that ``PublicRedirects`` allows."""
    try:
        answer = build_opener(PublicRedirects).open(request, timeout=timeout)
    except ValueError as error:  # urllib raises it for a redirect without an address
        raise URLError(f"the server redirects to no address ({error})") from None
    if not isinstance(answer, HTTPResponse):
        raise URLError("no answer of a web server")
    return answer


def private(host: str) -> bool:
    """True if a host has a loopback, link-local or otherwise not public address."""
    try:
        addresses = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return any(not ip_address(str(address[0]).partition("%")[0]).is_global for *_, address in addresses)
