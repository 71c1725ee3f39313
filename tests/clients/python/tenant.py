"""The Python client as a tenant of two namespaces, and as a dashboard that impersonates the tenant.

    tenant.py DIRECTORY

../tenants/setup.sh has written the kubeconfigs of the directory.
"""

import pathlib
import sys

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

from client import PATIENCE_SECONDS, check, equal, until, versions

VISIBLE = ["weir-tenant-a", "weir-tenant-b"]
TENANT = "system:serviceaccount:weir-tenant-a:tenant"


def main():
    directory = pathlib.Path(sys.argv[1])
    names = [f"{user}.{side}" for user in ("tenant", "dashboard") for side in ("through", "direct")]
    api = {name: config.new_client_from_config(str(directory / name)) for name in names}
    reviews(api["tenant.through"], api["tenant.direct"])
    through, direct = (client.CoreV1Api(api[f"tenant.{side}"]) for side in ("through", "direct"))
    lists(through, direct)
    watches(through)
    for side in ("through", "direct"):
        api[f"dashboard.{side}"].set_default_header("Impersonate-User", TENANT)
    impersonates(*(client.CoreV1Api(api[f"dashboard.{side}"]) for side in ("through", "direct")))


def reviews(through, direct):
    step("asks what it may do")
    for namespace in [*VISIBLE, "weir-tenant-c", ""]:
        for resource in ("configmaps", "secrets", "pods"):
            for verb in ("get", "list", "create"):
                attributes = {"namespace": namespace, "verb": verb, "resource": resource}
                review = {"spec": {"resourceAttributes": attributes}}

                def same():
                    answers = [
                        client.AuthorizationV1Api(side).create_self_subject_access_review(review).status
                        for side in (through, direct)
                    ]
                    return answers[0] == answers[1]

                until(f"{attributes} has one answer", same)


def lists(through, direct):
    step("lists what it may see")

    def is_union():
        union = [item for name in VISIBLE for item in direct.list_namespaced_config_map(name).items]
        seen, token = [], None
        while True:
            page = through.list_config_map_for_all_namespaces(limit=2, _continue=token)
            seen += page.items
            token = page.metadata._continue
            if not token:
                return versions(seen) == versions(union)

    until("all is the union of its namespaces", is_union)
    equal(code(lambda: direct.list_config_map_for_all_namespaces()), 403)
    equal(code(lambda: through.list_secret_for_all_namespaces()), 403)


def watches(through):
    step("watches what it may see")
    seen = set()
    listed = through.list_config_map_for_all_namespaces()
    stream = watch.Watch().stream(
        through.list_config_map_for_all_namespaces, timeout_seconds=PATIENCE_SECONDS
    )
    for event in stream:
        seen.add(event["object"].metadata.namespace)
        if len(seen) == len(VISIBLE):
            break
    equal(sorted(seen), sorted({item.metadata.namespace for item in listed.items}))


def impersonates(through, direct):
    step("is impersonated by a dashboard")
    for namespace in [*VISIBLE, "weir-tenant-c"]:

        def same():
            answers = [outcome(side, namespace) for side in (through, direct)]
            return answers[0] == answers[1]

        until(f"{namespace} has one answer", same)
    check(isinstance(outcome(through, VISIBLE[0]), list), "the tenant may read its namespace")


def outcome(side, namespace):
    """What an impersonated list returns: its objects, or the code of its error."""
    try:
        return versions(side.list_namespaced_config_map(namespace).items)
    except ApiException as error:
        return error.status


def code(call):
    try:
        call()
        return 200
    except ApiException as error:
        return error.status


def step(what):
    print(f"python: the tenant {what}", flush=True)


if __name__ == "__main__":
    main()
