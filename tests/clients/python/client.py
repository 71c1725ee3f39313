"""The Python client through Weir: lists, pages, watches and informs, and gets the same results as without Weir.

    client.py WEIR_KUBECONFIG [DIRECT_KUBECONFIG]

Works beside whatever else changes in the cluster: what is compared is compared at one resourceVersion, and what is watched
are objects of its own namespace. All waits are for a condition, each with a limit.
"""

import logging
import sys
import threading
import time
import uuid

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException
from kubernetes.informer import SharedInformer
from urllib3.exceptions import ProtocolError

# Longer than any step takes on a busy machine.
PATIENCE_SECONDS = 60
PAGE = 3
NAMESPACE = f"weir-clients-python-{uuid.uuid4().hex[:6]}"


def main():
    # The client logs failures that this test checks itself, and each stop as an error.
    logging.getLogger("kubernetes.informer").setLevel(logging.CRITICAL)
    through = client.CoreV1Api(config.new_client_from_config(sys.argv[1]))
    direct = client.CoreV1Api(config.new_client_from_config(sys.argv[-1]))
    through.create_namespace({"metadata": {"name": NAMESPACE}})
    try:
        for kind in (ConfigMaps, Pods):
            # More than a page, even in a cluster without other objects.
            names = [f"listed-{number}" for number in range(PAGE + 1)]
            for name in names:
                kind(through).create(name)
            lists(kind(through), kind(direct))
            pages(kind(through), kind(direct))
            for name in names:
                kind(through).delete(name)
            watches(kind(through))
            watch_list(kind(through))
            informs(kind(through), kind(direct))
        expires(Pods(through), Pods(direct))
    finally:
        through.delete_namespace(NAMESPACE)


class Kind:
    """One kind, by one client."""

    def __init__(self, api):
        self.list_all = getattr(api, f"list_{self.word}_for_all_namespaces")
        self.list = getattr(api, f"list_namespaced_{self.word}")
        self._create = getattr(api, f"create_namespaced_{self.word}")
        self._patch = getattr(api, f"patch_namespaced_{self.word}")
        self._delete = getattr(api, f"delete_namespaced_{self.word}")

    def create(self, name):
        # A new namespace accepts no pods until its service account exists.
        body = {"metadata": {"name": name, "labels": {"made-by": "python"}}, **self.body}
        until(f"{name} is created", lambda: answers(403, lambda: self._create(NAMESPACE, body)))

    def change(self, name):
        self._patch(name, NAMESPACE, {"metadata": {"labels": {"changed": uuid.uuid4().hex[:6]}}})

    def delete(self, name):
        self._delete(name, NAMESPACE, grace_period_seconds=0)


class ConfigMaps(Kind):
    word = "config_map"
    body = {"data": {"key": "value"}}


class Pods(Kind):
    word = "pod"
    body = {"spec": {"containers": [{"name": "c", "image": "registry.example.com/none"}]}}


def lists(through, direct):
    step(through, "lists")
    # At any resourceVersion, then at the latest one.
    for options in ({"resource_version": "0"}, {}):
        seen = through.list_all(**options)
        equal(versions(seen.items), versions(at(direct, seen).items))


def pages(through, direct):
    step(through, "pages")
    # Through Weir alone, then alternating: each server accepts the tokens of the other.
    for turns in ([through], [through, direct], [direct, through]):
        first = page = turns[0].list_all(limit=PAGE)
        items, number = list(page.items), 0
        while page.metadata._continue:
            number += 1
            turn = turns[number % len(turns)]
            page = turn.list_all(limit=PAGE, _continue=page.metadata._continue)
            equal(page.metadata.resource_version, first.metadata.resource_version)
            items += page.items
        equal(versions(items), versions(at(direct, first).items))
        check(number > 0, "there is more than one page")


def watches(kind):
    step(kind, "watches")
    kind.create("there")
    start = kind.list(NAMESPACE).metadata.resource_version
    for options in ({"resource_version": start}, {}):
        with Seen(kind, **options) as seen:
            if not options:
                seen.wait("there", "ADDED")
            kind.create("watched")
            seen.wait("watched", "ADDED")
            kind.change("watched")
            seen.wait("watched", "MODIFIED")
            kind.delete("watched")
            seen.wait("watched", "DELETED")
        events = [event for name, event in seen.events if name == "watched"]
        check(events[0] == "ADDED" and events[-1] == "DELETED", events)
        check(set(events[1:-1]) == {"MODIFIED"}, events)
    kind.delete("there")


def watch_list(kind):
    """The state as a watch that ends with a bookmark; another watch resumes from its resourceVersion."""
    step(kind, "starts with a watch")
    kind.create("first")
    names, resumed = [], watch.Watch()
    for event in resumed.stream(kind.list, NAMESPACE, send_initial_events=True,
                                resource_version_match="NotOlderThan", allow_watch_bookmarks=True,
                                timeout_seconds=PATIENCE_SECONDS):
        metadata = event["raw_object"]["metadata"]
        if event["type"] == "BOOKMARK":
            annotations = metadata.get("annotations", {})
            check(annotations.get("k8s.io/initial-events-end") == "true", event)
            break
        names.append(metadata["name"])
    check("first" in names, names)
    # The client itself stored the bookmark's resourceVersion.
    equal(resumed.resource_version, metadata["resourceVersion"])
    kind.create("second")
    with Seen(kind, resource_version=resumed.resource_version, allow_watch_bookmarks=True) as seen:
        seen.wait("second", "ADDED")
    check(("first", "ADDED") not in seen.events, seen.events)
    kind.delete("first")
    kind.delete("second")


def informs(through, direct):
    step(through, "informs")
    through.create("before")
    with Informing(through) as informer:
        informer.start()
        informer.converge(direct, ["before"])
        for name in ("one", "two"):
            through.create(name)
        through.change("one")
        through.delete("before")
        informer.converge(direct, ["one", "two"])
        through.delete("one")
        informer.converge(direct, ["two"])
        informer.stop()
        # The changes while it is disconnected arrive when it resumes.
        through.create("meanwhile")
        through.delete("two")
        informer.start()
        informer.converge(direct, ["meanwhile"])
        through.delete("meanwhile")
        informer.converge(direct, [])
        check(not informer.errors, informer.errors)


def expires(through, direct):
    """Expired history is a 410, after which an informer lists again."""
    step(through, "gets a 410 for expired history")

    def watch_from_the_start(kind):
        try:
            for _ in watch.Watch().stream(kind.list_all, resource_version="1", timeout_seconds=1):
                return None
        except ApiException as error:
            return error.status
        return None

    # A simulated cluster drops history after enough events, a real API server when it starts; an
    # API server as young as its cluster still has all of it.
    deadline = time.monotonic() + PATIENCE_SECONDS / 2
    while watch_from_the_start(direct) != 410:
        if time.monotonic() > deadline:
            print("python: skipped: this cluster has all its history")
            return
    equal(watch_from_the_start(through), 410)

    through.create("expired")
    with Informing(through) as informer:
        informer.start_at("1")
        informer.converge(direct, ["expired"])
        check([getattr(error, "status", error) for error in informer.errors] == [410], informer.errors)
    through.delete("expired")


class Seen:
    """A watch of the namespace, read by a thread."""

    def __init__(self, kind, **options):
        self.events = []
        self._changed = threading.Condition()
        self._stopped = False
        self._watch = watch.Watch()
        self._stream = self._watch.stream(kind.list, NAMESPACE, timeout_seconds=2 * PATIENCE_SECONDS,
                                          **options)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self):
        try:
            for event in self._stream:
                if event["type"] != "BOOKMARK":
                    self._take(event["object"].metadata.name, event["type"])
        except ProtocolError:
            # To stop, the client closes its own connection, which it reports as an error.
            if not self._stopped:
                self._take("the stream", "broke off")

    def _take(self, name, event):
        with self._changed:
            self.events.append((name, event))
            self._changed.notify_all()

    def wait(self, name, event):
        with self._changed:
            seen = self._changed.wait_for(lambda: (name, event) in self.events, PATIENCE_SECONDS)
            check(seen, f"no {event} of {name} in {self.events}")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped = True
        self._watch.stop()
        check(("the stream", "broke off") not in self.events, self.events)


class Informing(SharedInformer):
    """The client's informer on the namespace, and the errors that it reported."""

    def __init__(self, kind):
        super().__init__(kind.list, namespace=NAMESPACE)
        self.errors = []
        self.add_event_handler("ERROR", self._complain)

    def start_at(self, version):
        self._resource_version = version
        self.start()

    def converge(self, direct, names):
        """Waits until it holds exactly these objects, and the whole namespace."""

        def same():
            seen = self.cache.list()
            ours = sorted(item.metadata.name for item in seen if is_ours(item))
            return ours == names and versions(seen) == versions(direct.list(NAMESPACE).items)

        until(f"the informer holds {names}", same)

    def _complain(self, error):
        # To stop, it closes its own connection, which it reports as an error.
        if not self._stop_event.is_set():
            self.errors.append(error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def is_ours(item):
    return (item.metadata.labels or {}).get("made-by") == "python"


def at(kind, seen):
    """The list at the exact resourceVersion of another list."""
    version = seen.metadata.resource_version
    return kind.list_all(resource_version=version, resource_version_match="Exact")


def versions(items):
    return sorted((i.metadata.namespace, i.metadata.name, i.metadata.resource_version) for i in items)


def answers(refusal, call):
    """Whether a call succeeded; False for the expected rejection, any other is an error."""
    try:
        call()
        return True
    except ApiException as error:
        if error.status != refusal:
            raise
        return False


def until(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        check(time.monotonic() < deadline, f"still not: {what}")
        time.sleep(0.1)


def equal(left, right):
    check(left == right, f"{left}\n  is not\n{right}")


def check(holds, message):
    if not holds:
        raise AssertionError(message)


def step(kind, what):
    print(f"python: {kind.word} {what}", flush=True)


if __name__ == "__main__":
    main()
