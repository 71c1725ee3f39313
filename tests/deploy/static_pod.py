"""The static pod's configuration before a real API server, with a kubelet as its client.

Weir starts first, with files of the host alone, while there is no API server; it becomes ready when
the API server comes. A kubelet's client certificate gets answers from the cache, and forwarded
requests reach the API server in the kubelet's name: it may write its own node, and not another's.
Renewed certificates are taken over without a restart, and are those that WeirCertificateExpiring is
about.

Skipped without the tools of install.py.
"""

import json
import pathlib
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import yaml

from chart import ROOT, WEIR
from install import ApiServer, free_port, is_possible, request, series, wait_until

CONFIGURATION = ROOT / "deploy/static-pod/weir.yaml"
NODES = "/api/v1/nodes"


class Authority:
    """A CA, and the certificates that it signs."""

    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        self.openssl("req", "-x509", *self.new_key(name, f"/CN={name}"), "-out", f"{name}.crt")

    def openssl(self, *arguments):
        command = ["openssl", *arguments]
        subprocess.run(command, cwd=self.directory, check=True, capture_output=True)

    def new_key(self, name, subject):
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        return [*curve, "-nodes", "-subj", subject, "-keyout", f"{name}.key"]

    def sign(self, name, subject, usage="clientAuth", days=1):
        (self.directory / "extensions").write_text(
            f"extendedKeyUsage={usage}\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
        )
        self.openssl("req", *self.new_key(name, subject), "-out", "request")
        self.openssl(
            "x509", "-req", "-in", "request", "-CA", f"{self.name}.crt", "-CAkey", f"{self.name}.key",
            "-CAcreateserial", "-days", str(days), "-extfile", "extensions", "-out", f"{name}.crt",
        )  # fmt: skip


def kubelet(directory, url, method="GET", body=None):
    """A request with the kubelet's certificate, which trusts the cluster's CA alone."""
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    context.load_cert_chain(directory / "kubelet.crt", directory / "kubelet.key")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/merge-patch+json"}
    call = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(call, timeout=30, context=context) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def check(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


def start_weir(api, directory):
    """Returns the addresses of clients and of the admin listener."""
    client, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
    text = CONFIGURATION.read_text().replace("/etc/weir/", f"{directory}/")
    text = text.replace("0.0.0.0:6440", client).replace("0.0.0.0:6441", admin)
    (directory / "weir.yaml").write_text(text)
    cluster = {"server": api.url, "insecure-skip-tls-verify": True}
    user = {"client-certificate": f"{directory}/weir.crt", "client-key": f"{directory}/weir.key"}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    (directory / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    api.start(WEIR, "serve", "--config", directory / "weir.yaml")
    return client, admin


def apply_roles(api):
    """What `kubectl apply` of the two files creates."""
    paths = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}
    for file in ("deploy/manifests/rbac.yaml", "deploy/static-pod/rbac.yaml"):
        for one in yaml.safe_load_all((ROOT / file).read_text()):
            group = "/apis/rbac.authorization.k8s.io/v1"
            if one["kind"] == "RoleBinding":
                api.create(f"{group}/namespaces/{one['metadata']['namespace']}/rolebindings", one)
            else:
                api.create(f"{group}/{paths[one['kind']]}", one)


def trial(directory):
    cluster, proxies = Authority(directory, "ca"), Authority(directory, "front-proxy-ca")
    cluster.sign("tls", "/CN=weir", "serverAuth")
    cluster.sign("weir", "/CN=weir")
    cluster.sign("kubelet", "/O=system:nodes/CN=system:node:one")
    proxies.sign("front-proxy-client", "/CN=front-proxy-client")
    api = ApiServer(
        directory,
        f"--client-ca-file={directory}/ca.crt",
        f"--requestheader-client-ca-file={directory}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--enable-admission-plugins=NodeRestriction",
    )
    try:
        client, admin = start_weir(api, directory)
        wait_until("Weir lives without an API server", lambda: request(f"http://{admin}/livez")[0] == 200)
        check(request(f"http://{admin}/readyz")[0] != 200, "ready although there is no API server")
        api.serve()
        apply_roles(api)
        for name in ("one", "two"):
            api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        wait_until("a ready Weir", lambda: request(f"http://{admin}/readyz")[0] == 200)

        base = f"https://{client}"
        pods = f"{base}/api/v1/pods?fieldSelector=spec.nodeName%3Done&resourceVersion=0"

        def is_hit():
            return kubelet(directory, pods)[1].get("X-Weir-Cache") == "hit"

        def write(node):
            label = {"metadata": {"labels": {"seen": "yes"}}}
            return kubelet(directory, f"{base}{NODES}/{node}", "PATCH", label)

        wait_until("the kubelet's pods from the cache", is_hit)
        # 503 with Retry-After until Weir has read the cluster's setting for front proxies.
        wait_until("the kubelet's write of its own node", lambda: write("one")[0] == 200)
        other = write("two")
        message = json.loads(other[2]).get("message", "")
        check(other[0] == 403 and 'node "one" is not allowed' in message, f"another's node: {other}")
        missing = series(admin, "weir_missing_permissions")
        missing = [line for line in missing if not line.endswith(" 0")]
        check(not missing, f"the roles are not enough: {missing}")

        def expiries():
            lines = series(admin, "weir_certificate_expiry_timestamp_seconds")
            return {line.split('"')[1]: float(line.split()[1]) for line in lines}

        before = expiries()
        check(set(before) == {"serving", "client", "front-proxy"}, f"certificates: {before}")
        cluster.sign("tls", "/CN=weir", "serverAuth", days=365)
        cluster.sign("weir", "/CN=weir", days=365)
        proxies.sign("front-proxy-client", "/CN=front-proxy-client", days=365)

        def renewed():
            return all(end > before[use] + 300 * 86400 for use, end in expiries().items())

        wait_until("renewed certificates", renewed)
        wait_until("the kubelet's write with them", lambda: write("one")[0] == 200)
    except SystemExit:
        print((directory / "weir.log").read_text()[-5000:], file=sys.stderr)
        raise
    finally:
        api.stop()
    print("passed: the static pod before a real API server (a kubelet reads and writes; certificates are renewed)")


if __name__ == "__main__":
    if is_possible("the static pod before a real API server"):
        with tempfile.TemporaryDirectory() as path:
            trial(pathlib.Path(path))
