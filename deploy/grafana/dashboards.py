#!/usr/bin/env python3
"""Writes Weir's dashboards, from the tables of panels in panels.py, and copies them and the rules
into the Helm chart; and lets all links to runbooks begin with the `repository` of Cargo.toml.

    deploy/grafana/dashboards.py            # writes
    deploy/grafana/dashboards.py --check    # fails if a written file is not what it would write

Classic JSON, which every Grafana from 10 on loads (docs/decisions/objectives.md). Only Python's
standard library is needed.
"""

import json
import pathlib
import re
import sys

from panels import DASHBOARDS

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE.parent / "helm/weir/files"
RULES = HERE.parent / "prometheus" / "rules.yaml"
ROOT = HERE.parents[1]
# The one place that names the repository's home is `repository` in Cargo.toml.
HOME = re.search(r'^repository = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
RUNBOOKS = f"{HOME}/blob/main/docs/runbooks"
# The files, besides those written whole, with links to runbooks.
LINKING = [
    "deploy/prometheus/rules.yaml",
    "deploy/helm/weir/values.yaml",
    "tests/deploy/alerts.yaml",
    "tests/deploy/alerts-caches.yaml",
    "tests/deploy/alerts-days.yaml",
    "tests/deploy/objectives.yaml",
]

# What stands for @ in a query. A variable of which all values are chosen is `.*`, so that a label
# that does not exist matches too.
SELECTOR = 'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",instance=~"$instance"'
# What stands for % in a query: the labels of recording rules, which have no instance.
RECORDED = 'cluster=~"$cluster",namespace=~"$namespace",job=~"$job"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def query(text):
    """A query of panels.py in Prometheus' words."""
    return text.replace("@", SELECTOR).replace("%", RECORDED).replace("RATE", "$__rate_interval")


def variable(name, source):
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({source}, {name})", "refId": name},
        "definition": f"label_values({source}, {name})",
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def variables():
    chain = ["cluster", "namespace", "job", "instance"]
    datasource = {
        "name": "datasource",
        "label": "data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
        "options": [],
    }
    return [datasource] + [
        variable(name, "weir_build_info{" + ",".join(f'{one}=~"${one}"' for one in chain[:index]) + "}")
        for index, name in enumerate(chain)
    ]


# Options of each kind of panel, beside those that all have.
KINDS = {
    "timeseries": {
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "custom": {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False},
    },
    "stat": {
        "options": {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        },
        "custom": None,
    },
    "state-timeline": {
        "options": {"mergeValues": True, "showValue": "never", "rowHeight": 0.9, "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"}},
        "custom": {"fillOpacity": 80, "lineWidth": 0},
    },
    "heatmap": {
        "options": {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Spectral", "steps": 64},
            "yAxis": {"unit": "s"},
            "tooltip": {"show": True, "yHistogram": False},
        },
        "custom": None,
    },
    "table": {"options": {"showHeader": True}, "custom": {"align": "auto"}},
}


def thresholds(panel):
    """Green, and from each given value on another colour."""
    steps = [{"color": panel.get("base", "green"), "value": None}]
    steps += [{"color": color, "value": value} for value, color in panel.get("steps", [])]
    return {"mode": "absolute", "steps": steps}


def target(number, panel, text, legend, *_quiet):
    shape = {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query(text),
        "legendFormat": legend,
        "range": panel["kind"] != "table",
        "instant": panel["kind"] == "table",
    }
    if panel["kind"] in ("heatmap", "table"):
        shape["format"] = panel["kind"]
    return shape


def make_panel(number, panel, place):
    kind = KINDS[panel["kind"]]
    defaults = {"unit": panel["unit"], "thresholds": thresholds(panel), "mappings": panel.get("mappings", [])}
    defaults["color"] = {"mode": "thresholds" if panel["kind"] in ("stat", "state-timeline") else "palette-classic"}
    for bound in ("min", "max"):
        if bound in panel:
            defaults[bound] = panel[bound]
    if kind["custom"]:
        defaults["custom"] = kind["custom"]
    links = [{"title": name, "url": f"{RUNBOOKS}/{name}.md", "targetBlank": True} for name in panel.get("runbooks", [])]
    return {
        "id": number,
        "type": panel["kind"],
        "title": panel["title"],
        "description": panel["description"],
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [target(index, panel, *one) for index, one in enumerate(panel["queries"])],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": kind["options"],
        "links": links,
    }


def make_panels(rows):
    """Places panels from left to right in 24 columns, and a heading above each row."""
    panels, number, y = [], 1, 0
    for heading, row in rows:
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        panels.append({"id": number, "type": "row", "title": heading, "collapsed": False, "gridPos": place, "panels": []})
        number, y, x, height = number + 1, y + 1, 0, 0
        for panel in row:
            width = panel.get("width", 8)
            if x + width > 24:
                x, y, height = 0, y + height, 0
            height = max(height, panel.get("height", 8))
            place = {"h": panel.get("height", 8), "w": width, "x": x, "y": y}
            panels.append(make_panel(number, panel, place))
            number, x = number + 1, x + width
        y += height
    return panels


def dashboard(name, entry):
    links = [{"title": "Weir", "type": "dashboards", "tags": ["weir"], "asDropdown": True, "includeVars": True, "keepTime": True}]
    return {
        "uid": f"weir-{name}",
        "title": entry["title"],
        "description": entry["description"],
        "tags": ["weir"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": links,
        "templating": {"list": variables()},
        "panels": make_panels(entry["rows"]),
    }


def linked(text):
    """The text with the repository's home in each link to a runbook."""
    return re.sub(r"https?://\S+/docs/runbooks\b", RUNBOOKS, text)


def files():
    """Every written file with its text."""
    for name, entry in DASHBOARDS.items():
        text = json.dumps(dashboard(name, entry), indent=2) + "\n"
        yield HERE / f"{name}.json", text
        yield CHART / "dashboards" / f"{name}.json", text
    for name in LINKING:
        yield ROOT / name, linked((ROOT / name).read_text())
    yield CHART / "rules" / "rules.yaml", linked(RULES.read_text())


def main():
    if sys.argv[1:] == ["--check"]:
        stale = [str(path) for path, text in files() if not path.exists() or path.read_text() != text]
        if stale:
            sys.exit("run deploy/grafana/dashboards.py, which writes:\n" + "\n".join(stale))
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        for path, text in files():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


if __name__ == "__main__":
    main()
