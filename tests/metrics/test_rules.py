"""The rules in docs/monitoring: each fires when it should, and reads only metrics that brokers serve."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.metrics.promql import fires, metrics_in, parse_series

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
GROUP = yaml.safe_load((FOLDER / "ottla-rules.yml").read_text())["groups"][0]
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in GROUP["rules"]}
CASES = yaml.safe_load((FOLDER / "ottla-rules-test.yml").read_text())["tests"]


def panels() -> list[tuple[str, str]]:
    """Titles of the dashboard's panels, and their expressions."""
    dashboard = json.loads((FOLDER / "ottla-dashboard.json").read_text())
    return [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def expressions() -> list[str]:
    """All expressions of the rules and of the dashboard."""
    return [*(expression for _, expression in panels()), *(rule["expr"] for rule in RULES.values())]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_rules_fire(case: dict[str, Any]) -> None:
    series = dict(parse_series(each["series"], each["values"]) for each in case["input_series"])
    (expected,) = case["promql_expr_test"]
    rule = RULES[case["name"].split()[0]]
    assert f'alertname="{rule["alert"]}"' in expected["expr"]
    wanted = expected["exp_samples"][0]["value"] if expected["exp_samples"] else 0
    assert fires(rule, series, int(expected["eval_time"].removesuffix("m"))) == wanted


def test_each_rule_is_shown_to_fire_and_to_stay_quiet() -> None:
    names = [case["name"] for case in CASES]
    assert sorted(names) == sorted(f"{name} {what}" for name in RULES for what in ("fires", "stays quiet"))
    for rule in RULES.values():
        assert rule["annotations"].keys() == {"summary", "action"}
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_expressions_read_metrics() -> None:
    for expression in expressions():
        assert metrics_in(expression), expression


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_agrees() -> None:
    subprocess.run(["promtool", "check", "rules", "ottla-rules.yml"], cwd=FOLDER, check=True, timeout=60)
    subprocess.run(["promtool", "test", "rules", "ottla-rules-test.yml"], cwd=FOLDER, check=True, timeout=60)
