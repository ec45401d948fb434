"""The alert rules that are shipped: every metric in them exists, and promtool finds that they fire when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from semel.metrics import METRICS
from tests.docs.pages import ROOT, read

RULES = ROOT / "deploy" / "prometheus-alerts.yml"
WHEN = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: semel_queue_oldest_pending_seconds{{queue="payments", instance="a"}}
        values: 0 60 120 180 240 301 361 421 481 541
      - series: semel_queue_oldest_pending_seconds{{queue="default", instance="a"}}
        values: 10x30
      - series: semel_retries_total{{name="charge", instance="a"}}
        values: 0+30x40
      - series: semel_executions_total{{name="charge", status="completed", instance="a"}}
        values: 0+10x40
      - series: semel_retries_total{{name="ship", instance="a"}}
        values: 0+1x40
      - series: semel_executions_total{{name="ship", status="completed", instance="a"}}
        values: 0+100x40
      - series: semel_sweeper_stuck{{sweeper="stuck-tenants", instance="a"}}
        values: 3x40
      - series: semel_sweeper_stuck{{sweeper="healed", instance="a"}}
        values: 3x10 0x30
      - series: semel_schedules_late{{instance="a"}}
        values: 0 0 0 1x30
      - series: semel_outbox_oldest_pending_seconds{{database="shop", instance="a"}}
        values: 400x30
      - series: semel_outbox_retries_total{{database="shop", instance="a"}}
        values: 0+4x10 100+20x30
      - series: semel_outbox_failed{{database="shop", instance="a"}}
        values: 0x10 2x30
    promql_expr_test: []
    alert_rule_test:
{alerts}
"""


def expect(at: str, name: str, *labels: str) -> str:
    """The alert is firing then, once for each of these labels; without any: it is not."""
    lines = [f"      - eval_time: {at}", f"        alertname: {name}"]
    if labels:
        lines.append("        exp_alerts:")
    for one in labels:
        pairs = dict(pair.split("=") for pair in one.split("|"))
        lines.append(f"          - exp_labels: {{{', '.join(f'{key}: {value}' for key, value in pairs.items())}}}")
    return "\n".join(lines)


def test_every_metric_in_the_rules_exists_and_every_alert_has_its_line() -> None:
    text = RULES.read_text(encoding="utf-8")
    used = set(re.findall(r"semel_\w+", text)) - {"semel_doctor"}
    assert used <= set(METRICS)
    page = read("docs/how-to/metrics-and-alerts.md")
    alerts = re.findall(r"alert: (\w+)", text)
    assert [one for one in alerts if f"`{one}`" not in page] == []


def test_the_reference_has_every_metric_with_its_labels() -> None:
    rows = re.findall(r"(?m)^\| `(semel_\w+)` \| (.*?) \|", read("docs/reference/metrics.md"))
    assert {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == {
        name: one.labels for name, one in METRICS.items()
    }


def run(*arguments: str, folder: Path) -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: it is part of Debian's package prometheus")
    done = subprocess.run([tool, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    assert "SUCCESS" in run("check", "rules", str(RULES), folder=tmp_path)


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """promtool compares annotations too, so they are left out of the copy that is tried."""
    rules = re.sub(r"(?m)^        annotations:\n(?:          .*\n)+", "", RULES.read_text(encoding="utf-8"))
    (tmp_path / "rules.yml").write_text(rules)
    alerts = [
        expect("4m", "SemelPendingTooLong"),
        expect("7m", "SemelPendingTooLong", "queue=payments|severity=warning"),
        expect("15m", "SemelRowsStuck"),
        expect("25m", "SemelRowsStuck", "sweeper=stuck-tenants|severity=warning"),
        expect("2m", "SemelSchedulesLate"),
        expect("8m", "SemelSchedulesLate", "severity=critical"),
        expect("30m", "SemelRetriesHigh", "name=charge|severity=warning"),
        expect("5m", "SemelOutboxLag", "database=shop|severity=critical"),
        expect("8m", "SemelOutboxRetriesHigh"),
        expect("30m", "SemelOutboxRetriesHigh", "database=shop|severity=warning"),
        expect("5m", "SemelOutboxFailed"),
        expect("20m", "SemelOutboxFailed", "database=shop|severity=warning"),
        expect("5m", "SemelFailures"),
    ]
    (tmp_path / "test.yml").write_text(WHEN.format(rules="rules.yml", alerts="\n".join(alerts)))
    assert "SUCCESS" in run("test", "rules", "test.yml", folder=tmp_path)
