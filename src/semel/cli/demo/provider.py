"""The payment provider of the demo: a server that writes down every call before it answers, slowly.

It honours idempotency keys as real ones do: a second call under a key is answered with the first charge.
Run in the demo's folder: python -m semel.cli.demo.provider SECONDS
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from semel.cli.demo.ledger import Ledger
from semel.cli.demo.shop import PORT_FILE

METHOD = "POST"


class Till(BaseHTTPRequestHandler):
    """POST /charges with an Idempotency-Key."""

    ledger: Ledger
    seconds: float

    def charge(self) -> None:
        """Write it down, take some time as banks do, answer."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        entry = self.ledger.call(self.headers["Idempotency-Key"], asked["order"], asked["cents"])
        time.sleep(self.seconds)
        answer = json.dumps({"charge": entry.charge}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        try:
            self.wfile.write(answer)
        except OSError:
            return  # the caller is dead; the charge stands

    def log_message(self, format: str, *args: object) -> None:
        """The ledger is the log."""


setattr(Till, f"do_{METHOD}", Till.charge)  # http.server finds it by this name


def serve(folder: Path, seconds: float) -> None:
    """Serve until stdin ends, which it does when the demo is gone."""
    Till.ledger = Ledger(folder)
    Till.seconds = seconds
    server = ThreadingHTTPServer(("127.0.0.1", 0), Till)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fresh = folder / f"{PORT_FILE}.new"
    fresh.write_text(str(server.server_port))
    fresh.rename(folder / PORT_FILE)
    sys.stdin.read()


if __name__ == "__main__":
    serve(Path.cwd(), float(sys.argv[1]))
