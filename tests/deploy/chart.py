"""The Helm chart: lint, the schema of its values, what it renders, and the kustomize base; and the
static pod.

Each rendered object is validated against the strict schemas of the oldest Kubernetes that the chart
supports and of the newest that is known, each pod against the rules of the Pod Security Standard
`restricted`, and each configuration by `weir check`, if that is built.
"""

import contextlib
import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import helm_python as helm
import kubernetes_validate
import yaml

from values import ACCEPTED, REFUSED

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/weir"
BASE = ROOT / "deploy/manifests"
WEIR = ROOT / "target/debug/weir"
VERSIONS = ("1.30", "1.37")

# Objects of other projects' definitions, whose schemas are not known here.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "Certificate"}

# The kinds of volumes that the Pod Security Standard `restricted` allows.
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
RESTRICTED_VOLUMES |= {"projected", "secret"}

failures = []


def check(holds, what):
    if not holds:
        failures.append(what)


def render(values, chart=CHART):
    """The objects that the chart makes, and its notes."""
    with helm.Chart.load(chart) as loaded:
        files = loaded.render(values, name="weir", namespace="weir")
    notes = [text for path, text in files.items() if path.endswith("NOTES.txt")]
    manifests = [text for path, text in files.items() if not path.endswith("NOTES.txt")]
    objects = [one for text in manifests for one in yaml.safe_load_all(text) if one]
    return objects, notes[0]


def key(one):
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def of_kind(objects, kind):
    return [one for one in objects if one["kind"] == kind]


def configuration(objects):
    return of_kind(objects, "ConfigMap")[0]["data"]["weir.yaml"]


def validate(name, objects):
    for one in objects:
        if one["kind"] in FOREIGN:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(one, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                check(False, f"{name}: {key(one)} in {version}: {error.message}")


def check_pod(name, objects):
    """The rules of the Pod Security Standard `restricted`, and what the chart promises beyond."""
    for deployment in of_kind(objects, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        check_probes(name, pod)
        check_restricted(name, pod)
        check(not pod["automountServiceAccountToken"], f"{name}: mounts a token by itself")
        for container in pod["containers"]:
            check_weir(name, container)


def check_restricted(name, pod):
    context = pod.get("securityContext", {})
    check(context.get("runAsNonRoot") and context.get("runAsUser", 0) > 0, f"{name}: runs as root")
    check(context.get("seccompProfile", {}).get("type") == "RuntimeDefault", f"{name}: seccomp")
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    check(kinds <= RESTRICTED_VOLUMES, f"{name}: volumes {kinds}")
    for word in ("hostNetwork", "hostPID", "hostIPC"):
        check(word not in pod, f"{name}: {word}")
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        context = container.get("securityContext", {})
        check(context.get("allowPrivilegeEscalation") is False, f"{name}: escalation")
        check(context.get("capabilities") == {"drop": ["ALL"]}, f"{name}: capabilities")


def check_weir(name, container):
    context = container.get("securityContext", {})
    check(context.get("readOnlyRootFilesystem") is True, f"{name}: a root that is written to")
    mounts = container["volumeMounts"]
    check(not any("subPath" in mount for mount in mounts), f"{name}: subPath is never updated")
    check(container["image"].rpartition(":")[2] != "latest", f"{name}: the tag latest")


def sidecar_pod():
    """The pod of docs/how-to/sidecar.md, with an image in place of the dots."""
    text = (ROOT / "docs/how-to/sidecar.md").read_text()
    block = re.search(r"```yaml\n(spec:.*?)```", text, re.DOTALL)[1]
    spec = yaml.safe_load(block)["spec"]
    for container in [*spec["initContainers"], *spec["containers"]]:
        container["image"] = "weir:0.1.0"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


def sidecar():
    """The pod of docs/how-to/sidecar.md, with the configuration that the page names."""
    pod = sidecar_pod()
    validate("sidecar", [pod])
    check_restricted("sidecar", pod["spec"])
    weir = pod["spec"]["initContainers"][0]
    check_weir("sidecar", weir)
    config = yaml.safe_load((ROOT / "config/sidecar.yaml").read_text())
    check_mounts("sidecar", config, weir)
    limit = weir.get("resources", {}).get("limits", {}).get("memory", "0Mi")
    units = {"Mi": 1 << 20, "Gi": 1 << 30}
    sizes = (limit, config["cache"]["totalBytesMax"])
    limit, total = (int(size[:-2]) * units[size[-2:]] for size in sizes)
    check(limit >= 2 * total, f"sidecar: a memory limit of {limit} for caches of {total}")


def check_files(name, objects):
    container = of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]
    check_mounts(name, yaml.safe_load(configuration(objects)), container)


def check_mounts(name, config, container):
    """Each file that a configuration names lies below a directory that the container has."""

    def paths(part):
        if isinstance(part, str):
            return [part] if part.startswith("/") else []
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
        return [path for one in inner for path in paths(one)]

    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    named = paths(config)
    check(len(named) >= 2, f"{name}: files {named}")
    for path in named:
        check(any(path.startswith(f"{mount}/") for mount in mounts), f"{name}: {path} is not mounted")


def grace_periods():
    """The kubelet's time must exceed the drain, in whatever form the durations are written.

    Each pair of durations is together as long as it says, in seconds; the binary reads them, too.
    """
    for delay, timeout, seconds in [
        ("0", "1h30m", 5400),
        ("10s", "2m", 130),
        ("500ms", "1m30.5s", 91),
        (".5s", "1.5m", 90.5),
        ("1000000us", "5000000000ns", 6),
        (0, "1h2m3s4ms", 3723.004),
    ]:
        server = {"shutdownDelay": delay, "shutdownTimeout": timeout}
        values = {"config": {"server": server}, "terminationGracePeriodSeconds": int(seconds)}
        refuses(values, "must exceed")
        values["terminationGracePeriodSeconds"] += 1
        objects, _ = render(values)
        check_configuration(f"{delay} and {timeout}", configuration(objects))
    for text in ("1..5s", "1h30"):
        refuses({"config": {"server": {"shutdownTimeout": text}}}, "")


def live_settings(schema, path=""):
    """The settings that a running Weir takes over, by the schema."""
    live = {path} if schema.get("x-live") else set()
    for name, inner in schema.get("properties", {}).items():
        live |= live_settings(inner, f"{path}.{name}".lstrip("."))
    return live


def checksums():
    """A change of a setting replaces the pods if the setting needs a restart, and only then."""

    def settings(part, path):
        if part.get("properties"):
            for name, inner in part["properties"].items():
                yield from settings(inner, [*path, name])
        else:
            yield path, part

    def example(schema):
        kind, pattern = schema["type"], schema.get("pattern", "")
        if "enum" in schema:
            return schema["enum"][-1]
        if "string" in kind and pattern:
            return "7s" if "ms" in pattern else "64Mi"
        return {"boolean": True, "integer": 7, "array": [], "string": "x"}[kind]

    def rendered(config):
        objects, _ = render({"config": config})
        annotations = of_kind(objects, "Deployment")[0]["spec"]["template"]["metadata"]["annotations"]
        return annotations["checksum/config"], yaml.safe_load(configuration(objects))

    schema = json.loads((CHART / "values.schema.json").read_text())
    live, met = live_settings(schema["properties"]["config"]), set()
    check(len(live) > 10, f"the schema names too few live settings: {live}")
    default = rendered({})
    for path, part in settings(schema["properties"]["config"], []):
        config = example(part)
        for name in reversed(path):
            config = {name: config}
        checksum, text = rendered(config)
        name = ".".join(path)
        met.add(name)
        expected = name not in live and text != default[1]
        replaces = checksum != default[0]
        check(replaces == expected, f"{name}: a change replaces the pods: {replaces}, expected {expected}")
    check(live <= met, f"live settings that the schema does not have: {live - met}")


def check_probes(name, pod):
    """Only readiness depends on the API server: its absence must not end a pod that starts."""
    paths = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    for probe, path in paths.items():
        asked = pod["containers"][0][probe]["httpGet"]["path"]
        check(asked == path, f"{name}: {probe} asks {asked}")


def autoscaling():
    """Helm must not set the number of pods that the autoscaler sets (install.py upgrades it)."""
    on, _ = render(ACCEPTED["autoscaling"])
    off, _ = render({})
    check("replicas" not in of_kind(on, "Deployment")[0]["spec"], "the chart resets the autoscaler")
    check(of_kind(off, "Deployment")[0]["spec"]["replicas"] == 2, "no replicas without an autoscaler")
    autoscaler = of_kind(on, "HorizontalPodAutoscaler")[0]["spec"]
    check(len(autoscaler["metrics"]) == 2, f"metrics: {autoscaler['metrics']}")
    check(autoscaler["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 600, "scales down early")
    check(not of_kind(off, "HorizontalPodAutoscaler"), "an autoscaler that nobody asked for")
    role = next(one for one in of_kind(on, "ClusterRole") if one["metadata"]["name"] == "weir-cache")
    extra = [rule for rule in role["rules"] if "cert-manager.io" in rule.get("apiGroups", [])]
    check([rule["verbs"] for rule in extra] == [["list", "watch"]], f"extraRules: {extra}")


@contextlib.contextmanager
def older_chart():
    """The chart with the values of an older version. Helm's --reuse-values has the same effect."""
    with tempfile.TemporaryDirectory() as directory:
        chart = pathlib.Path(directory) / "weir"
        shutil.copytree(CHART, chart)
        shutil.copy(ROOT / "tests/deploy/older-values.yaml", chart / "values.yaml")
        yield chart


def upgrades():
    """An upgrade that keeps the values of an older version makes what the defaults make."""
    with older_chart() as chart:
        for name, values in ACCEPTED.items():
            # It needs the numbers of the new values.
            if "autoscaling" in values:
                continue
            try:
                older = comparable(render(values, chart)[0])
            except helm.HelmError as error:
                check(False, f"{name}: values of an older version: {error}")
                continue
            check(older == comparable(render(values)[0]), f"{name}: values of an older version differ")


def check_configuration(name, text):
    if not WEIR.exists():
        return
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        run = subprocess.run([WEIR, "check", file.name], capture_output=True, text=True)
        check(run.returncode == 0, f"{name}: weir check: {run.stderr}")


def comparable(objects):
    """The objects by name, without what only Helm needs."""
    result = {}
    for one in copy.deepcopy(objects):
        labels = one["metadata"].get("labels", {})
        for label in ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"):
            labels.pop(label, None)
        if one["kind"] == "Deployment":
            one["spec"]["template"]["metadata"]["annotations"].pop("checksum/config", None)
        if one["kind"] == "ConfigMap":
            one["data"] = {name: yaml.safe_load(text) for name, text in one["data"].items()}
        result[key(one)] = one
    return result


def base():
    """The objects of the base, all but the namespace, which Helm's user names."""
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    known = {"apiVersion", "kind", "resources"}
    check(set(kustomization) <= known, f"kustomization.yaml: only {known} are understood here")
    texts = [(BASE / file).read_text() for file in kustomization["resources"]]
    objects = [one for text in texts for one in yaml.safe_load_all(text)]
    return [one for one in objects if one["kind"] != "Namespace"]


def same_as_base():
    chart, kustomize = comparable(render({})[0]), comparable(base())
    for name in sorted(chart.keys() | kustomize.keys()):
        left, right = chart.get(name), kustomize.get(name)
        if left != right:
            text = [json.dumps(side, indent=1, sort_keys=True).splitlines() for side in (left, right)]
            only = [sorted(set(text[0]) - set(text[1])), sorted(set(text[1]) - set(text[0]))]
            check(False, f"chart and base differ in {name}: chart {only[0]}, base {only[1]}")


def same_optional_roles():
    values = copy.deepcopy(ACCEPTED["every role"])
    values["rbac"]["impersonator"]["groups"] = ["system:authenticated", "developers"]
    chart = comparable(render(values)[0])
    for file in sorted((BASE / "optional").glob("*.yaml")):
        for name, one in comparable(list(yaml.safe_load_all(file.read_text()))).items():
            check(chart.get(name) == one, f"chart and {file.name} differ in {name}: {chart.get(name)}")


def monitoring():
    """The rules and dashboards of deploy/ are installed as they are, but for the runbooks' address."""
    url = "https://docs.example/runbooks"
    values = {"prometheusRule": {"enabled": True, "runbookUrl": url}, "dashboards": {"enabled": True}}
    objects, _ = render(values)
    text = (ROOT / "deploy/prometheus/rules.yaml").read_text()
    wanted = yaml.safe_load(re.sub(r"https?://\S+/docs/runbooks", url, text))
    check(of_kind(objects, "PrometheusRule")[0]["spec"] == wanted, "the chart's rules are others")
    maps = [one["data"] for one in of_kind(objects, "ConfigMap")]
    for path in sorted((ROOT / "deploy/grafana").glob("*.json")):
        texts = [data[path.name] for data in maps if path.name in data]
        check(texts == [path.read_text()], f"the chart's {path.name} is another")
    validate("monitoring", objects)


def files_of_the_chart():
    """Rules and dashboards that lie in the chart's directory are installed."""
    with tempfile.TemporaryDirectory() as directory:
        chart = pathlib.Path(directory) / "weir"
        helm_chart = helm.Chart.load(CHART)
        helm_chart.save_dir(directory)
        for name in ("rules", "dashboards"):
            (chart / "files" / name).mkdir(parents=True, exist_ok=True)
        before = len(list((chart / "files/rules").glob("*.yaml")))
        rule = {"alert": "A", "expr": "up == 0", "annotations": {"summary": "{{ $labels.pod }}"}}
        text = yaml.safe_dump({"groups": [{"name": "a", "rules": [rule]}]})
        (chart / "files/rules" / "a.yaml").write_text(text)
        (chart / "files/dashboards" / "overview.json").write_text('{"title": "{{pod}}"}\n')
        values = {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
        objects, _ = render(values, chart)
        groups = of_kind(objects, "PrometheusRule")[0]["spec"]["groups"]
        check(len(groups) > before, "a group of each file")
        check(rule in [one for group in groups for one in group["rules"]], "the rule is unchanged")
        maps = [one for one in of_kind(objects, "ConfigMap") if "overview.json" in one["data"]]
        check(len(maps) == 1, "one ConfigMap for a dashboard")
        check(json.loads(maps[0]["data"]["overview.json"]) == {"title": "{{pod}}"}, "unchanged")
        validate("dashboards", objects)
    for name in ("prometheusRule", "dashboards"):
        folder = CHART / "files" / {"prometheusRule": "rules"}.get(name, name)
        if not any(folder.glob("*.[jy]*")):
            refuses({name: {"enabled": True}}, "the chart has no")


def static_pod():
    """The static pod refers to no object of a cluster, and its role bindings to roles that exist."""
    directory = ROOT / "deploy/static-pod"
    pod = yaml.safe_load((directory / "pod.yaml").read_text())
    bindings = list(yaml.safe_load_all((directory / "rbac.yaml").read_text()))
    validate("static pod", [pod, *bindings])
    check_configuration("static pod", (directory / "weir.yaml").read_text())
    kinds = {kind for volume in pod["spec"]["volumes"] for kind in volume if kind != "name"}
    check(kinds == {"hostPath"}, f"static pod: volumes {kinds}")
    for word in ("serviceAccountName", "serviceAccount"):
        check(word not in pod["spec"], f"static pod: {word}")
    check_probes("static pod", pod["spec"])
    scraped = of_kind(base(), "Deployment")[0]["spec"]["template"]["metadata"]["annotations"]
    check(pod["metadata"].get("annotations") == scraped, "static pod: Prometheus does not find it")
    container = pod["spec"]["containers"][0]
    check("env" not in container and "envFrom" not in container, "static pod: environment")
    check(container["imagePullPolicy"] == "Never", "static pod: it pulls its image")
    deployment = of_kind(base(), "Deployment")[0]["spec"]["template"]["spec"]
    check(container["image"] == deployment["containers"][0]["image"], "static pod: the image")
    built_in = {"system:auth-delegator", "extension-apiserver-authentication-reader"}
    roles = built_in | {one["metadata"]["name"] for one in base() if one["kind"] == "ClusterRole"}
    for binding in bindings:
        check(binding["roleRef"]["name"] in roles, f"static pod: {binding['roleRef']['name']}")


def refuses(values, part):
    try:
        render(values)
    except helm.HelmError as error:
        check(part in str(error), f"{values}: the error does not name {part}: {error}")
    else:
        check(False, f"{values} are accepted")


def values_are_described():
    """Each value has a comment above it, and the schema knows it and nothing else."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith((" ", "#")):
            check(number and lines[number - 1].strip() != "" or line in UNDESCRIBED, f"{line}: no comment")
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load("\n".join(lines))
    known = set(schema["properties"]) - {"global"}
    check(known == set(defaults), f"schema and values: {known ^ set(defaults)}")

    def closed(part, path):
        if "properties" in part:
            check(part.get("additionalProperties") is False or path in OPEN, f"{path} is open")
            for name, inner in part["properties"].items():
                check("description" in inner or path in OPEN, f"{path}.{name}: no description")
                closed(inner, f"{path}.{name}")

    closed(schema, "values")


# Groups whose members have the comments.
UNDESCRIBED = {"image:", "autoscaling:", "tls:", "frontProxy:", "rbac:", "serviceAccount:", "service:", "pdb:", "resources:"}
UNDESCRIBED |= {"proxyProtocol:", "networkPolicy:", "serviceMonitor:", "prometheusRule:", "dashboards:"}
UNDESCRIBED |= {"tolerations: []", "affinity: {}"}
# Objects that may have any member.
OPEN = set()


def main():
    for finding in helm.lint(CHART, strict=True)["messages"]:
        # 1 is information: a chart may have an icon.
        check(finding["severity"] <= 1, f"lint: {finding}")
    values_are_described()
    for name, values in ACCEPTED.items():
        objects, notes = render(values)
        validate(name, objects)
        check_pod(name, objects)
        check_files(name, objects)
        check_configuration(name, configuration(objects))
        check("https://weir.weir.svc" in notes, f"{name}: the notes do not name the address")
    for values, part in REFUSED:
        refuses(values, part)
    grace_periods()
    checksums()
    autoscaling()
    upgrades()
    same_as_base()
    same_optional_roles()
    monitoring()
    files_of_the_chart()
    validate("base", base())
    check_pod("base", base())
    static_pod()
    sidecar()
    if not WEIR.exists():
        print("skipped: weir check of the chart's configurations (target/debug/weir is not built)")
    if failures:
        print("\n".join(failures), file=sys.stderr)
        sys.exit(1)
    print(f"passed: the chart and the static pod ({len(ACCEPTED)} sets of values, {len(REFUSED)} refused)")


if __name__ == "__main__":
    main()
