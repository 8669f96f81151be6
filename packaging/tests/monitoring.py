"""Loads the alert rules into a real Prometheus, and has it evaluate each expression of the dashboards: `monitoring.py FOLDER`."""

import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

ADDRESS = "127.0.0.1:19090"
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RULES = REPOSITORY / "docs/prometheus/alerts.yml"
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}


def main(folder):
    folder = pathlib.Path(folder)
    (folder / "prometheus.yml").write_text(f"rule_files: [{json.dumps(str(RULES))}]\n", encoding="utf-8")
    server = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={ADDRESS}"],
        stderr=subprocess.PIPE, text=True)
    try:
        wait(server)
        check_rules()
        check_dashboards()
    finally:
        server.terminate()
        server.communicate(timeout=60)


def wait(server):
    while True:
        assert server.poll() is None, server.stderr.read()
        try:
            return ask("/-/ready")
        except OSError:
            time.sleep(0.2)


def ask(path):
    with urllib.request.urlopen(f"http://{ADDRESS}{path}", timeout=30) as answer:
        return answer.read()


def check_rules():
    groups = json.loads(ask("/api/v1/rules"))["data"]["groups"]
    loaded = sorted(rule["name"] for group in groups for rule in group["rules"])
    written = sorted(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))
    assert loaded == written, f"Prometheus has {loaded}"
    for rule in (rule for group in groups for rule in group["rules"]):
        assert (RULES.parents[2] / rule["annotations"]["runbook"]).is_file(), rule["name"]
    print(f"{len(loaded)} rules")


def check_dashboards():
    expressions = 0
    for path in sorted((REPOSITORY / "packaging/grafana").glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        assert dashboard["uid"] == path.stem
        identifiers = [panel["id"] for panel in dashboard["panels"]]
        assert len(identifiers) == len(set(identifiers)), path
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                evaluate(target["expr"])
                expressions += 1
    assert expressions > 30
    print(f"{expressions} expressions")


def evaluate(expression):
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    try:
        ask("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{expression}: {error.read().decode()}") from error


main(*sys.argv[1:])
