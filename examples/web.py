"""A web application without a framework that charges orders through `app.sync`, as a Flask or Django view would.

    semel worker examples.web:app          # in one terminal
    python -m examples.web                 # in another
    curl -d '{"cents": 9900}' localhost:8000/orders/o-1/charge
    curl localhost:8000/orders/o-1/charge

`web` is a WSGI application: any server can run it, and its handlers may run in many threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import make_server

import semel

app = semel.App(namespace="web")

Answer = tuple[str, dict[str, Any]]


@app.task(queue="payments", retry=5)
def charge(order_id: str, cents: int) -> dict[str, Any]:
    """A sync task; the worker runs it in a thread."""
    return {"order": order_id, "cents": cents, "key": semel.effect_key("charge")}


def start(order_id: str, body: dict[str, Any]) -> Answer:
    """POST: 202 for a new charge, 200 for a repeated request, 422 for the same order with a different amount."""
    try:
        handle = app.sync.enqueue(charge, order_id, body["cents"], task_id=f"charge:{order_id}")
    except semel.KeyConflict as conflict:
        return "422 Unprocessable Content", {"code": conflict.code, "message": conflict.message}
    except semel.InputError as error:
        return "400 Bad Request", {"code": error.code, "message": error.message}
    except semel.EngineUnavailable as error:
        return "503 Service Unavailable", {"code": error.code, "message": "try again: it is safe"}
    answer = {"id": handle.id, "duplicate": handle.duplicate}
    return ("200 OK" if handle.duplicate else "202 Accepted"), answer


def look(order_id: str) -> Answer:
    """GET: the status, and the result if there is one. Never waits."""
    handle = app.sync.find(f"charge:{order_id}")
    if handle is None:
        return "404 Not Found", {"message": f"order {order_id} was never charged"}
    answer: dict[str, Any] = {"id": handle.id, "status": handle.status()}
    if answer["status"] == semel.Status.COMPLETED:
        answer["result"] = handle.result()
    return "200 OK", answer


def web(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The WSGI application."""
    path = re.fullmatch(r"/orders/([\w-]+)/charge", environ["PATH_INFO"])
    if path is None:
        status, answer = "404 Not Found", {"message": "try /orders/o-1/charge"}
    elif environ["REQUEST_METHOD"] == "POST":
        length = int(environ.get("CONTENT_LENGTH") or 0)
        status, answer = start(path[1], json.loads(environ["wsgi.input"].read(length)))
    else:
        status, answer = look(path[1])
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


if __name__ == "__main__":
    make_server("127.0.0.1", 8000, web).serve_forever()
