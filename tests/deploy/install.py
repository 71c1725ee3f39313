"""The Helm chart on a real API server: installed, upgraded and removed by Helm itself.

Then the gateway's first answer from a cache: Weir runs here, with the configuration that the chart
installed and a token of the service account that it made, and a user reads through it. So the roles
are enough, and Weir misses no permission. The objects of docs/tutorial are accepted too.

Needs etcd and kube-apiserver in $KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin, openssl, and
target/debug/weir; skipped without them.
"""

import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import helm_python as helm
import yaml

from chart import ACCEPTED, CHART, FOREIGN, ROOT, WEIR, of_kind, older_chart, render, sidecar_pod

ASSETS = pathlib.Path(os.environ.get("KUBEBUILDER_ASSETS", "/usr/local/kubebuilder/bin"))
# The administrator of the test's API server.
TOKEN = "administrator"
ANY_CERTIFICATE = ssl._create_unverified_context()  # It is made at each start.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, holds, timeout=90):
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: {what} within {timeout} s")
        time.sleep(0.1)


def request(url, token=None, method="GET", body=None, kind="application/json"):
    """The status, headers and text of the response; (None, {}, error) if there is none."""
    headers = {"Content-Type": kind}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(call, timeout=30, context=ANY_CERTIFICATE) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()
    except OSError as error:
        return None, {}, str(error)


def series(admin, name):
    """The lines of the metric `name` that Weir's admin listener shows."""
    lines = request(f"http://{admin}/metrics")[2].splitlines()
    return [line for line in lines if line.startswith(f"{name}{{")]


class ApiServer:
    """etcd, and kube-apiserver once it serves; `stop` ends both."""

    def __init__(self, directory, *flags):
        self.directory, self.processes = directory, []
        clients, peers, port = free_port(), free_port(), free_port()
        key = directory / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (directory / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n")
        etcd, peer = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
        self.start(
            ASSETS / "etcd", f"--data-dir={directory}/etcd", f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync", "--log-level=error",
        )  # fmt: skip
        self.url = f"https://127.0.0.1:{port}"
        self.command = [
            ASSETS / "kube-apiserver", f"--etcd-servers={etcd}", f"--cert-dir={directory}/certificates",
            f"--secure-port={port}", "--bind-address=127.0.0.1", f"--token-auth-file={directory}/tokens",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.0.0.0/24", *flags,
        ]  # fmt: skip

    def serve(self):
        self.start(*self.command)
        wait_until("a ready API server", lambda: self.call("/readyz")[0] == 200)

    def start(self, *command, **options):
        log = open(self.directory / f"{pathlib.Path(command[0]).name}.log", "ab")
        process = subprocess.Popen(command, stdout=log, stderr=log, **options)
        self.processes.append(process)
        return process

    def call(self, path, *arguments):
        return request(self.url + path, TOKEN, *arguments)

    def create(self, path, one):
        status, _, text = self.call(path, "POST", one)
        if status != 201:
            sys.exit(f"FAILED: {path}: {status} {text}")
        return json.loads(text)

    def kubeconfig(self, token):
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            }
        )

    def stop(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


def is_possible(what):
    """Whether all tools are there; says so if one is not."""
    needed = [ASSETS / "etcd", ASSETS / "kube-apiserver", WEIR]
    absent = [str(path) for path in needed if not path.exists()]
    if not shutil.which("openssl"):
        absent.append("openssl")
    if absent:
        print(f"skipped: {what} (no {', '.join(absent)})")
    return not absent


def install(api):
    """Each set of values, one after another: an installation, upgrades, and the end."""
    sets = {
        name: values
        for name, values in ACCEPTED.items()
        if not any(one["kind"] in FOREIGN for one in render(values)[0])
    }
    with helm.Config(kubeconfig_content=api.kubeconfig(TOKEN), namespace="weir") as config:
        with older_chart() as older:
            config.install(older, "weir", sets.pop("defaults"), namespace="weir")
        config.upgrade(CHART, "weir", {}, namespace="weir", reuse_values=True)
        for values in sets.values():
            config.upgrade(CHART, "weir", values, namespace="weir", reset_values=True)
        config.upgrade(CHART, "weir", {}, namespace="weir", reset_values=True)
        check_autoscaling(api, config)
    return len(sets) + 3


def check_autoscaling(api, config):
    """To turn the autoscaler on, and each later upgrade, leaves the number of pods as it is."""
    path = "/apis/apps/v1/namespaces/weir/deployments/scaled-weir"
    config.install(CHART, "scaled", {}, namespace="weir")
    for expected in (2, 5):
        config.upgrade(CHART, "scaled", ACCEPTED["autoscaling"], namespace="weir", reset_values=True)
        replicas = json.loads(api.call(path)[2])["spec"]["replicas"]
        if replicas != expected:
            sys.exit(f"FAILED: {replicas} replicas after an upgrade with autoscaling, expected {expected}")
        # As the autoscaler does.
        scale = {"spec": {"replicas": 5}}
        api.call(f"{path}/scale", "PATCH", scale, "application/merge-patch+json")
    config.uninstall("scaled")


def check_admission(api):
    """The namespace enforces `restricted`: a pod of the chart and one with a sidecar are admitted, another is not."""
    deployment = of_kind(render({})[0], "Deployment")[0]
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
    path = "/api/v1/namespaces/weir/pods?dryRun=All"
    api.create(path, pod)
    beside = sidecar_pod()
    beside["spec"]["serviceAccountName"] = "default"
    api.create(f"{path}&fieldValidation=Strict", beside)
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    status, _, text = api.call(path, "POST", pod)
    if status != 403:
        sys.exit(f"FAILED: the namespace admits every pod: {status} {text}")


def dry_run(api):
    """The objects of the tutorials, on the server but for storing them, and their pods."""
    count = 0
    for file in sorted((ROOT / "docs/tutorial").glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            metadata = one["metadata"]
            if one["kind"] == "Namespace":
                # It must be there for the others.
                api.create("/api/v1/namespaces", one)
                account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
                api.call(f"/api/v1/namespaces/{metadata['name']}/serviceaccounts", "POST", account)
            elif one["kind"] == "ServiceAccount":
                api.create(f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts", one)
            else:
                inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
                path = f"/apis/{one['apiVersion']}{inside}/{one['kind'].lower()}s"
                api.create(f"{path}?dryRun=All&fieldValidation=Strict", one)
            if template := one.get("spec", {}).get("template"):
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
                api.create(f"/api/v1/namespaces/{metadata['namespace']}/pods?dryRun=All&fieldValidation=Strict", pod)
            count += 1
    return count


def first_answer(api, directory):
    """Weir with the installed configuration, as the installed service account."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    account = "/api/v1/namespaces/weir/serviceaccounts/weir/token"
    token = api.create(account, review)["status"]["token"]
    (directory / "kubeconfig").write_text(api.kubeconfig(token))
    for name in ("tls.crt", "tls.key"):
        (directory / name).touch(mode=0o600)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "1", "-subj", "/CN=weir", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", directory / "tls.key", "-out", directory / "tls.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    shutil.copy(directory / "tls.crt", directory / "ca.crt")
    installed = json.loads(api.call("/api/v1/namespaces/weir/configmaps/weir")[2])["data"]["weir.yaml"]
    client, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
    text = installed.replace("/etc/weir/tls", str(directory))
    text = text.replace("0.0.0.0:6440", client).replace("0.0.0.0:6441", admin)
    (directory / "weir.yaml").write_text(text)
    weir = api.start(WEIR, "serve", "--config", directory / "weir.yaml", "--kubeconfig", directory / "kubeconfig")
    wait_until("a ready Weir", lambda: request(f"http://{admin}/readyz")[0] == 200)

    path = f"https://{client}/api/v1/namespaces?resourceVersion=0"
    # The first read starts the cache, and may be forwarded meanwhile.
    wait_until("an answer from the cache", lambda: request(path, TOKEN)[1].get("X-Weir-Cache") == "hit")
    if request(path, "wrong")[0] != 401:
        sys.exit("FAILED: a wrong token is accepted")
    missing = series(admin, "weir_missing_permissions")
    missing = [line for line in missing if not line.endswith(" 0")]
    if missing:
        sys.exit(f"FAILED: {missing}: {(directory / 'weir.log').read_text()}")
    weir.terminate()
    if weir.wait(timeout=60) != 0:
        sys.exit("FAILED: Weir did not end cleanly")


def main():
    if not is_possible("the chart on a real API server"):
        return
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        api = ApiServer(directory)
        try:
            api.serve()
            label = {"pod-security.kubernetes.io/enforce": "restricted"}
            metadata = {"name": "weir", "labels": label}
            api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            # There is no controller that makes it.
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            api.call("/api/v1/namespaces/weir/serviceaccounts", "POST", account)
            revisions = install(api)
            check_admission(api)
            objects = dry_run(api)
            first_answer(api, directory)
            with helm.Config(kubeconfig_content=api.kubeconfig(TOKEN), namespace="weir") as config:
                config.uninstall("weir")
            for path in ("/api/v1/namespaces/weir/services/weir", "/apis/rbac.authorization.k8s.io/v1/clusterroles/weir-cache"):
                if api.call(path)[0] != 404:
                    sys.exit(f"FAILED: {path} is left")
        finally:
            api.stop()
    print(f"passed: the chart on a real API server ({revisions} revisions, an answer from the cache; {objects} objects of tutorials)")


if __name__ == "__main__":
    main()
