"""A server that asks who we are: certificates from the settings open the door, and nothing else does."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel.engines.temporal.connect import connect, parse
from semel.engines.temporal.namespace import check
from semel.errors import EngineError
from semel.settings import TemporalSettings
from semel.testing.temporal_server import TemporalServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates"),
]


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and what it signed for a server and for a client; and another authority that nobody trusts."""
    folder = tmp_path_factory.mktemp("certs")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for authority in ("ca", "other"):
        openssl(folder, "req", "-x509", *new, "-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-days", "2",
                "-subj", f"/CN={authority}")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:temporal.test")
    for name in ("server", "client"):
        openssl(folder, "req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", "names")  # fmt: skip
    return folder


@contextmanager
def behind_tls(server: TemporalServer, certs: Path) -> Iterator[int]:
    """A port that speaks TLS, lets in who shows a certificate, and hands on to the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "server.pem", certs / "server.key")
    context.load_verify_locations(certs / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])

    def serve(front: socket.socket) -> None:
        with (
            suppress(OSError),
            context.wrap_socket(front, server_side=True) as outer,
            socket.create_connection(("127.0.0.1", server.port)) as inner,
        ):
            hand_on(outer, inner)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def hand_on(outer: ssl.SSLSocket, inner: socket.socket) -> None:
    """Until one side ends."""
    while True:
        ready = [outer] if outer.pending() else select.select([outer, inner], [], [])[0]
        for one in ready:
            data = one.recv(1 << 14)
            if not data:
                return
            (inner if one is outer else outer).sendall(data)


def shown(certs: Path, **settings: Any) -> TemporalSettings:
    files = {name: str(certs / file) for name, file in settings.items()}
    return TemporalSettings(tls_server_name="temporal.test", **files)


async def test_certificates_open_the_door(temporal_server: TemporalServer, certs: Path) -> None:
    temporal_server.prepare("tls", timedelta(days=2))
    with behind_tls(temporal_server, certs) as port:
        settings = shown(certs, server_root_ca="ca.pem", client_cert="client.pem", client_key="client.key")
        client = await connect(parse(f"temporal://127.0.0.1:{port}/tls", settings))
        await check(client, timedelta(days=2))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"server_root_ca": "ca.pem"},
        {"server_root_ca": "other.pem", "client_cert": "client.pem", "client_key": "client.key"},
        {"server_root_ca": "ca.pem", "client_cert": "other.pem", "client_key": "other.key"},
    ],
    ids=["an unknown authority", "no certificate", "the wrong authority", "a certificate of a stranger"],
)
async def test_nothing_else_does(temporal_server: TemporalServer, certs: Path, files: dict[str, str]) -> None:
    with behind_tls(temporal_server, certs) as port, pytest.raises(EngineError) as caught:
        await connect(parse(f"temporal://127.0.0.1:{port}/tls", shown(certs, **files)))
    assert "PRIVATE KEY" not in str(caught.value)
