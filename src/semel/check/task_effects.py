"""Effects of tasks on the outside that happen again with the next attempt, unless they carry a key."""

from __future__ import annotations

import ast
from typing import Final

from semel.check.values import FunctionNode
from semel.check.words import words

HTTP: Final = words("requests httpx aiohttp urllib3 niquests")
HTTP_VERBS: Final = words("post put patch delete")
CHANGES: Final[dict[str, frozenset[str]]] = {
    "stripe": words("create create_async modify modify_async confirm capture cancel refund delete pay send_invoice"),
    "braintree": words("sale create refund void"),
    "paypalrestsdk": words("create execute refund"),
    "smtplib": words("send_message sendmail"),
    "aiosmtplib": words("send send_message sendmail"),
    "sendgrid": words("send"),
    "twilio": words("create create_async"),
    "slack_sdk": words("chat_postMessage send"),
    "boto3": words(
        "send_email send_raw_email publish send_message send_message_batch put_events put_record put_records"
    ),
    "pika": words("basic_publish"),
    "aio_pika": words("publish"),
    "kafka": words("send"),
    "aiokafka": words("send send_and_wait"),
    "confluent_kafka": words("produce"),
    "nats": words("publish"),
    "redis": words("publish xadd"),
    "google": words("publish"),
}
"""Methods that pay, send or publish, by the package that they come from."""
TELLTALES: Final = tuple(name.encode() for name in sorted({*HTTP, *CHANGES}))
"""A file without any of these words has no such effect."""
_KEYS: Final = words("effect_key idempotency_key dedup_key deduplication_id MessageDeduplicationId")
_HEADER: Final = "idempotency-key"


def outside_effect(name: str, call: ast.Call) -> bool:
    """Does a call of this dotted name change something outside?"""
    package, verb = name.partition(".")[0].removesuffix("()"), name.rpartition(".")[2]
    if package in HTTP:
        return verb in HTTP_VERBS or (verb == "request" and _method(call) in HTTP_VERBS)
    return verb in CHANGES.get(package, ())


def has_key(node: FunctionNode) -> bool:
    """Does a function make, take or hand on an effect key, under one of the usual names?"""
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.arg(arg=name):
                if name in _KEYS:
                    return True
            case ast.Constant(value=str(text)) if text.lower() in (_HEADER, *_KEYS):
                return True
            case _:
                pass
    return False


def _method(call: ast.Call) -> str:
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "method")]
    return str(given[0].value).lower() if given and isinstance(given[0], ast.Constant) else ""
