#!/usr/bin/env python3
"""The load balancer examples: clients survive the sudden end of every Weir.

    tests/deploy/load_balancer.py [haproxy|nginx|haproxy-by-resource|envoy-by-resource]... [--weir FILE]

A simulated API server, two Weirs before it, and a load balancer with the configuration of
deploy/load-balancer before these. Clients read and watch through it. Both Weirs are killed at once,
and are started again later. Each client must be answered within 10 s, and a watch that resumes must
get each event once and in order, as a direct watch of the API server gets them. HAProxy must also use
an API server that refuses anonymous checks.

Those that give each resource to one Weir are before three Weirs, of which one is killed and started
again: only its resources move, the watches of all others go on, and its resources come back.
"""

import http.client
import http.server
import json
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECOVERY_MAX = 10.0
TLS = ssl._create_unverified_context()  # The certificates are made at each start.
CREDENTIAL = {}  # The simulated API server answers nobody without one.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, holds, timeout=60):
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: {what} within {timeout} s")
        time.sleep(0.05)


def get(port, path, tls=True):
    """The response's status and headers; None if there is none."""
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    options = {"context": TLS} if tls else {}
    connection = kind("127.0.0.1", port, timeout=5, **options)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status, response.headers
    except OSError:
        return None
    finally:
        connection.close()


class Reader(threading.Thread):
    """Reads again and again on one connection, and on a new one after a failure, as client-go does.

    `answers` has the time of each answer, and whether a Weir gave it.
    """

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.answers, self.stopped = port, [], threading.Event()

    def run(self):
        connection = None
        while not self.stopped.wait(0.05):
            try:
                if connection is None:
                    connection = http.client.HTTPSConnection(
                        "127.0.0.1", self.port, timeout=5, context=TLS
                    )
                connection.request("GET", "/api/v1/nodes?resourceVersion=0", headers=CREDENTIAL)
                response = connection.getresponse()
                response.read()
                if response.status == 200:
                    by_weir = response.headers["X-Weir-Cache"] is not None
                    self.answers.append((time.monotonic(), by_weir))
            except (OSError, http.client.HTTPException):
                if connection is not None:
                    connection.close()
                connection = None


class Watcher(threading.Thread):
    """Watches pods, and resumes where a watch ended. `events` has the time and the version of each."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.events, self.stopped = port, [], threading.Event()
        self.problem = None

    def run(self):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=TLS)
        connection.request("GET", "/api/v1/pods?resourceVersion=0", headers=CREDENTIAL)
        version = json.load(connection.getresponse())["metadata"]["resourceVersion"]
        self.first = int(version)
        while not self.stopped.is_set():
            try:
                version = self.watch(version)
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)

    def watch(self, version):
        query = f"/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=TLS)
        try:
            connection.request("GET", query, headers=CREDENTIAL)
            response = connection.getresponse()
            while not self.stopped.is_set():
                line = response.readline()
                if not line.endswith(b"\n"):
                    return version
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.problem = event
                    self.stopped.set()
                    return version
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.events.append((time.monotonic(), int(version)))
        except (OSError, http.client.HTTPException):
            # What was read so far counts.
            pass
        finally:
            connection.close()
        return version


class World:
    """The processes, of which none is left at the end."""

    def __init__(self, weir, directory):
        self.weir, self.directory, self.processes = weir, pathlib.Path(directory), []

    def start(self, name, *command):
        log = open(self.directory / f"{name}.log", "ab")
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        self.processes.append(process)
        return process

    def start_api_server(self):
        """The demo's simulated API server. The demo's own Weir has no part in this."""
        listen = f"--listen=http://127.0.0.1:{free_port()}"
        flags = ["--no-clients", "--dir", str(self.directory / "demo"), "--nodes=5", "--pods=50", "--churn=40", listen]
        self.start("demo", self.weir, "demo", *flags)
        self.kubeconfig = self.directory / "demo/upstream.kubeconfig"
        wait_until("an API server", lambda: self.kubeconfig.exists())
        kubeconfig = json.loads(self.kubeconfig.read_text())
        CREDENTIAL["Authorization"] = "Bearer " + kubeconfig["users"][0]["user"]["token"]
        server = kubeconfig["clusters"][0]["cluster"]["server"]
        self.api_port = int(server.rpartition(":")[2])
        wait_until("an API server", lambda: get(self.api_port, "/readyz"))

    def start_weir(self, number, port, admin):
        return self.start(
            f"weir-{number}", self.weir, "serve", f"--kubeconfig={self.kubeconfig}",
            f"--listen=https://127.0.0.1:{port}", f"--admin-listen=127.0.0.1:{admin}",
        )  # fmt: skip

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def configuration(kind, world, port, weirs):
    """The example with the addresses of this machine."""
    name = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}[kind]
    text = (ROOT / "deploy/load-balancer" / name).read_text()
    for number, (client, admin) in enumerate(weirs, 1):
        # HAProxy asks the admin port of each Weir; here these differ.
        check = f" port {admin}" if kind == "haproxy" else ""
        text = text.replace(f"10.0.0.1{number}:6440", f"127.0.0.1:{client}{check}")
    # The example has two API servers; here is one.
    text = re.sub(r"\n *server [^\n]*10\.0\.0\.2:6443[^\n]*", "", text)
    text = text.replace("10.0.0.1:6443", f"127.0.0.1:{world.api_port}")
    text = text.replace("bind :6443", f"bind 127.0.0.1:{port}")
    text = text.replace("listen 6443", f"listen 127.0.0.1:{port}")
    if kind == "nginx":
        module = next(pathlib.Path("/usr/lib/nginx/modules").glob("ngx_stream_module.so"))
        # More files than a test may open.
        text = text.replace("65536", "1024").replace("20000", "1000")
        text = f"load_module {module};\ndaemon off;\nerror_log stderr;\n{text}"
        text = f"pid {world.directory}/nginx.pid;\n{text}"
    path = world.directory / name
    path.write_text(text)
    return path


def longest_gap(times, since, until):
    """The longest time without an answer."""
    inside = [since, *(at for at in times if since <= at <= until), until]
    return max(after - before for before, after in zip(inside, inside[1:]))


def trial(kind, world):
    port = free_port()
    weirs = [(free_port(), free_port()) for _ in range(2)]
    path = configuration(kind, world, port, weirs)
    command = ["haproxy", "-f", path] if kind == "haproxy" else ["nginx", "-c", path]
    processes = [world.start_weir(number, *ports) for number, ports in enumerate(weirs)]
    for _, admin in weirs:
        wait_until("a ready Weir", lambda: (get(admin, "/readyz", tls=False) or [0])[0] == 200)
    balancer = world.start(kind, *command)

    def by_weir():
        _, headers = get(port, "/api/v1/nodes?resourceVersion=0") or (None, {})
        return "X-Weir-Cache" in headers

    wait_until("an answer of a Weir", by_weir)

    direct = Watcher(world.api_port)
    watchers = [Watcher(port) for _ in range(4)]
    clients = [Reader(port) for _ in range(4)]
    for client in [direct, *watchers, *clients]:
        client.start()
    wait_until("events", lambda: all(len(watcher.events) > 20 for watcher in [direct, *watchers]))
    wait_until("answers", lambda: all(len(client.answers) > 20 for client in clients))

    killed = time.monotonic()
    for process in processes:
        process.send_signal(signal.SIGKILL)
    time.sleep(RECOVERY_MAX)
    back = time.monotonic()
    processes = [world.start_weir(number, *ports) for number, ports in enumerate(weirs)]
    wait_until("an answer of a Weir again", by_weir)
    returned = time.monotonic()
    time.sleep(2)
    end = time.monotonic()
    for client in [direct, *watchers, *clients]:
        client.stopped.set()
    for client in [direct, *watchers, *clients]:
        client.join()
    for process in [balancer, *processes]:
        process.terminate()
        process.wait()

    def by_api_server(client):
        return (at - killed for at, weir in client.answers if at > killed and not weir)

    gap = max(longest_gap([at for at, _ in client.answers], killed, end) for client in clients)
    first = [min(by_api_server(client), default=float("inf")) for client in clients]
    watch_gap = max(longest_gap([at for at, _ in watcher.events], killed, end) for watcher in watchers)
    print(
        f"{kind}: every Weir killed: the API server answers each reader after at most {max(first):.1f} s; "
        f"longest time without an answer {gap:.1f} s, without an event {watch_gap:.1f} s; "
        f"a Weir answers again {returned - back:.1f} s after its start"
    )
    problems = []
    if max(gap, watch_gap) > RECOVERY_MAX:
        problems.append("a client waited too long")
    if any(not weir for client in clients for at, weir in client.answers if at < killed):
        problems.append("an API server answered although Weirs were ready")
    for watcher in watchers:
        seen = [version for _, version in watcher.events]
        expected = [version for _, version in direct.events]
        # What both have been sent.
        first, last = max(watcher.first, direct.first), min(seen[-1], expected[-1])
        seen, expected = ([it for it in them if first < it <= last] for them in (seen, expected))
        if watcher.problem or seen != expected:
            what = watcher.problem or f"{len(seen)} events, {len(expected)} expected"
            problems.append(f"a watch lost or repeated events: {what}")
    return problems


class Answering(http.server.BaseHTTPRequestHandler):
    """An API server that gives every request the status of its server."""

    def do_GET(self):
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


def certificate(world, name):
    """The files of a new certificate, which is its own CA, and of its key."""
    key, file = world.directory / f"{name}.key", world.directory / f"{name}.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "1", "-subj", f"/CN={name}", "-keyout", key, "-out", file],
        check=True, capture_output=True,
    )  # fmt: skip
    return file, key


def without_anonymous_requests(world):
    """HAProxy sends clients to an API server that lives, also if it does not answer anonymous checks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(world, "api"))
    problems = []
    for status, is_usable in ((200, True), (401, True), (403, True), (500, False)):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        server.status = status
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        world.api_port, port = server.server_address[1], free_port()
        # No Weir listens.
        weirs = [(free_port(), free_port()) for _ in range(2)]
        path = configuration("haproxy", world, port, weirs)
        balancer = world.start("haproxy", "haproxy", "-f", path)
        # After two checks of each server.
        time.sleep(4)
        answer = get(port, "/version")
        if (answer is not None) != is_usable:
            problems.append(f"an API server that answers {status} to checks: {answer}")
        balancer.terminate()
        balancer.wait()
        server.shutdown()
    return problems


RESOURCES = [
    *(f"/api/v1/{name}" for name in ("configmaps", "endpoints", "limitranges", "namespaces", "nodes", "pods",
      "persistentvolumes", "resourcequotas", "secrets", "serviceaccounts", "services")),
    *(f"/apis/apps/v1/{name}" for name in ("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets")),
    *(f"/apis/batch/v1/{name}" for name in ("cronjobs", "jobs")),
    "/apis/coordination.k8s.io/v1/leases", "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/networkpolicies", "/apis/policy/v1/poddisruptionbudgets",
]  # fmt: skip


class Watch(threading.Thread):
    """One watch of a resource, which nobody resumes."""

    def __init__(self, port, resource):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, context=TLS)
        self.connection.request("GET", f"{resource}?watch=1&resourceVersion=0")
        self.response, self.ended = self.connection.getresponse(), False
        self.start()

    def run(self):
        try:
            while self.response.readline():
                pass
        except (OSError, http.client.HTTPException):
            pass
        self.ended = True


def start_with_certificate(world, number, ports, files):
    """A Weir whose certificate the load balancer verifies."""
    (client, admin), (file, key) = ports, map(str, files)
    listener = {"listen": f"https://127.0.0.1:{client}", "certificate": {"certificateFile": file, "privateKeyFile": key}}
    path = world.directory / f"weir-{number}.yaml"
    path.write_text(json.dumps({
        "apiVersion": "weir.dev/v1alpha1", "kind": "WeirConfiguration", "server": {"listeners": [listener]},
        "admin": {"listen": f"127.0.0.1:{admin}"}, "upstream": {"kubeconfig": str(world.kubeconfig)},
    }))  # fmt: skip
    process = world.start(f"weir-{number}", world.weir, "serve", f"--config={path}")
    wait_until("a ready Weir", lambda: (get(admin, "/readyz", tls=False) or [0])[0] == 200)
    return process


def start_by_resource(kind, world, port, weirs, file, key):
    """The load balancer, with the addresses and files of this machine in its example."""
    name = {"haproxy-by-resource": "haproxy-by-resource.cfg", "envoy-by-resource": "envoy-by-resource.yaml"}[kind]
    text = (ROOT / "deploy/load-balancer" / name).read_text()
    both = world.directory / "both.pem"
    both.write_text(file.read_text() + key.read_text())
    text = text.replace("/etc/haproxy/kubernetes.pem", str(both)).replace("bind :6443", f"bind 127.0.0.1:{port}")
    text = text.replace("/etc/envoy/kubernetes.crt", str(file)).replace("/etc/envoy/kubernetes.key", str(key))
    text = re.sub("/etc/(haproxy|envoy)/weir-ca.crt", str(file), text)
    text = text.replace("address: 0.0.0.0, port_value: 6443", f"address: 127.0.0.1, port_value: {port}")
    for number, (client, admin) in enumerate(weirs, 1):
        address = f"10.0.0.1{number}"
        text = text.replace(f"{address}:6440\n", f"127.0.0.1:{client} port {admin}\n")
        text = text.replace(f"{address}:6440", f"127.0.0.1:{client}")
        text = text.replace(f"address: {address}, port_value: 6440", f"address: 127.0.0.1, port_value: {client}")
        # The port of the check is in the line after the address.
        text = re.sub(rf"(port_value: {client} .*\n.*port_value: )6441", rf"\g<1>{admin}", text)
    path = world.directory / name
    path.write_text(text)
    command = ["haproxy", "-f"] if kind.startswith("haproxy") else ["envoy", "--use-dynamic-base-id", "-c"]
    return world.start(kind, *command, path)


def cached(admin):
    """The resources of which a Weir has a cache."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as response:
        text = response.read().decode()
    found = re.findall(r'^weir_cache_objects{group="(.*?)".*resource="(.*?)",version="(.*?)"', text, re.M)
    return {f"/apis/{group}/{version}/{name}" if group else f"/api/{version}/{name}" for group, name, version in found}


def by_resource(kind, world):
    port, weirs = free_port(), [(free_port(), free_port()) for _ in range(3)]
    files = certificate(world, "weir")
    processes = [start_with_certificate(world, number, ports, files) for number, ports in enumerate(weirs)]
    balancer = start_by_resource(kind, world, port, weirs, *files)
    wait_until("an answer", lambda: (get(port, "/version") or [0])[0] == 200)
    # Each Weir has passed two checks.
    time.sleep(3)

    def read_all():
        """The longest time until a resource is answered, by its paths for all namespaces and for one."""
        longest = 0
        for resource in RESOURCES:
            group, _, name = resource.rpartition("/")
            for path in (resource, f"{group}/namespaces/default/{name}" if name not in CLUSTER_WIDE else resource):
                began = time.monotonic()
                wait_until(path, lambda: (get(port, f"{path}?resourceVersion=0") or [0])[0] == 200, RECOVERY_MAX)
                longest = max(longest, time.monotonic() - began)
        return longest

    def places():
        """The Weirs that have a cache of each resource."""
        caches = {number: cached(admin) for number, (_, admin) in enumerate(weirs) if processes[number].poll() is None}
        return {resource: [number for number in caches if resource in caches[number]] for resource in RESOURCES}

    problems = []
    read_all()
    first = places()
    problems += [f"{it} is in Weirs {where}" for it, where in first.items() if len(where) != 1]
    problems += [f"Weir {number} has nothing" for number in range(3) if [number] not in first.values()]
    watches = {resource: Watch(port, resource) for resource in RESOURCES}
    lost = first["/api/v1/pods"][0]
    moved = [resource for resource in RESOURCES if first[resource] == [lost]]
    processes[lost].kill()
    processes[lost].wait()
    longest = read_all()
    # Checks have noticed it.
    time.sleep(3)
    second = places()
    problems += [f"the watch of {it} {'ended' if watches[it].ended else 'goes on'}"
                 for it in RESOURCES if watches[it].ended != (it in moved)]  # fmt: skip
    problems += [f"{it} is in Weirs {second[it]}" for it in moved if len(second[it]) != 1]
    problems += [f"{it} moved" for it in RESOURCES if it not in moved and second[it] != first[it]]
    processes[lost] = start_with_certificate(world, lost, weirs[lost], files)
    time.sleep(3)
    read_all()
    third = places()
    problems += [f"{it} did not come back" for it in moved if lost not in third[it]]
    problems += [f"{it} moved to the Weir that came back" for it in RESOURCES if it not in moved and third[it] != first[it]]
    for process in [balancer, *processes]:
        process.terminate()
        process.wait()
    print(f"{kind}: {len(moved)} of {len(RESOURCES)} resources moved from a lost Weir, each answered after at most {longest:.1f} s")
    return problems


CLUSTER_WIDE = ("namespaces", "nodes", "persistentvolumes")


def main():
    arguments = sys.argv[1:]
    weir = ROOT / "target/debug/weir"
    if "--weir" in arguments:
        at = arguments.index("--weir")
        weir = pathlib.Path(arguments[at + 1]).resolve()
        del arguments[at : at + 2]
    problems = []
    for kind in arguments or ["haproxy", "nginx", "haproxy-by-resource", "envoy-by-resource"]:
        program = kind.partition("-")[0]
        if not shutil.which(program):
            print(f"skipped: {kind} ({program} is not installed)")
            continue
        with tempfile.TemporaryDirectory() as directory:
            world = World(weir, directory)
            try:
                world.start_api_server()
                test = by_resource if kind.endswith("-by-resource") else trial
                problems += [f"{kind}: {problem}" for problem in test(kind, world)]
                if kind == "haproxy":
                    problems += without_anonymous_requests(world)
            finally:
                world.stop()
    if problems:
        sys.exit("FAILED: " + "\nFAILED: ".join(problems))


if __name__ == "__main__":
    main()
