"""Minari's remote data sets, listed and downloaded by the ``minari`` package, an optional extra."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from http.client import HTTPMessage, HTTPResponse
from importlib import import_module
from io import StringIO
from ipaddress import ip_address
from types import ModuleType
from typing import IO
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener
from warnings import catch_warnings

from rlbench.errors import RefusedFile, ResourceExhausted, UsageError

REMOTE = "hf://farama-minari"
REMEDY = "pip install 'minari[hf]>=0.5.3'"


def names() -> list[str]:
    """List the data sets of the remote, by an access of the network.

    Raises:
        UsageError: Minari is not installed, or ``MINARI_REMOTE`` names no storage that it supports.
        ResourceExhausted: the remote cannot be reached.
    """
    with _minari() as minari:
        return sorted(minari.list_remote_datasets())


def download(name: str) -> None:
    """Download a data set into Minari's folder; ``huggingface_hub`` resumes an interrupted download.

    Raises:
        UsageError: as ``names``, or the remote has no data set of this name.
        ResourceExhausted: the remote cannot be reached, or the disk is full.
    """
    with _minari() as minari:
        minari.download_dataset(name, force_download=True)  # or it skips a folder that is there, whole or not


@contextmanager
def _minari() -> Iterator[ModuleType]:
    """Import the package, keep stdout free of its messages, and translate its errors."""
    remote = os.environ.get("MINARI_REMOTE") or REMOTE
    if not remote.startswith(("hf://", "gcp://")):
        raise UsageError(f"MINARI_REMOTE={remote}: give hf://ORGANISATION or gcp://BUCKET, or unset it")
    try:
        with redirect_stdout(StringIO()), catch_warnings(record=True):
            yield import_module("minari")
    except ImportError as error:
        raise UsageError(f"Minari's remote needs a package that is not installed ({error}): {REMEDY}") from error
    except ValueError as error:
        raise UsageError(f"{remote}: {error} `rlbench data list --remote` lists the data sets") from error
    except Exception as error:  # each transport raises its own
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ResourceExhausted(
            f"{remote}: {reason}; check the connection and run the same command again: it resumes"
        ) from error


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
