"""Sets of values of the Helm chart: those that it accepts, and those that it must refuse."""

# Values that the chart accepts. The first are the defaults.
ACCEPTED = {
    "defaults": {},
    "behind a load balancer": {"proxyProtocol": {"trustedNetworks": ["10.0.0.0/24", "10.1.0.7"]}},
    "digest": {"image": {"repository": "registry.example:5000/weir", "digest": "sha256:" + "0" * 64}},
    "small": {
        "replicas": 1,
        "resources": {"requests": {"memory": "512Mi"}, "limits": {"memory": "512Mi"}},
        "pdb": {"enabled": False},
    },
    "huge": {"resources": {"limits": {"memory": "64Gi", "cpu": 8}}, "service": {"type": "LoadBalancer"}},
    "no limit": {"resources": {"limits": {"memory": None}}},
    "own budgets": {
        "config": {"cache": {"totalBytesMax": "2Gi", "resourceBytesMax": "1Gi", "warm": ["v1/pods"]}}
    },
    "every role": {
        "rbac": {
            "secrets": True,
            "rbacReader": True,
            "impersonator": {"users": ["jane@example.com"], "groups": ["developers"]},
        },
        "config": {
            "authentication": {"impersonate": True},
            "authorization": {"rbac": {"enabled": True}},
        },
    },
    "others' objects": {
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "existing"},
        "networkPolicy": {"enabled": False},
    },
    "operators": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "tls": {"certManager": {"enabled": True, "issuerRef": {"name": "ca"}, "dnsNames": ["weir.example"]}},
        "podAnnotations": {"prometheus.io/scrape": None, "prometheus.io/port": None},
    },
    "placed": {
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
            }
        ],
        "priorityClassName": "system-cluster-critical",
        "imagePullSecrets": [{"name": "registry"}],
        "extraArgs": ["--log-filter=debug"],
        "podLabels": {"team": "platform"},
        "service": {"port": 6443, "annotations": {"a": "b"}, "trafficDistribution": "PreferSameZone"},
        "networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "monitoringNamespace": ""},
        "serviceAccount": {"annotations": {"a": "b"}},
    },
}

# The files and the environment that config/ and docs/ tell operators to configure.
ACCEPTED["mounted files"] = {
    "frontProxy": {"secretName": "weir-front-proxy"},
    "extraVolumes": [
        {"name": "files", "projected": {"sources": [{"secret": {"name": "a"}}, {"configMap": {"name": "b"}}]}},
        {"name": "audit", "emptyDir": {"sizeLimit": "1Gi"}},
    ],
    "extraVolumeMounts": [
        {"name": "files", "mountPath": "/etc/weir/files", "readOnly": True},
        {"name": "audit", "mountPath": "/var/log/weir"},
    ],
    "env": [
        {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"},
        {"name": "NO_PROXY", "valueFrom": {"configMapKeyRef": {"name": "proxy", "key": "no-proxy"}}},
    ],
    "config": {
        "authentication": {"clientCAFile": "/etc/weir/files/client-ca.crt"},
        "upstream": {"kubeconfig": "/etc/weir/files/kubeconfig"},
        "tracing": {"endpoint": "https://collector:4318/v1/traces", "caFile": "/etc/weir/files/collector.crt"},
        "audit": {"output": "/var/log/weir/audit.log"},
    },
}

ACCEPTED["autoscaling"] = {
    "autoscaling": {
        "enabled": True,
        "metrics": [
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "weir_connections"},
                    "target": {"type": "AverageValue", "averageValue": "5000"},
                },
            }
        ],
    },
    "rbac": {"extraRules": [{"apiGroups": ["cert-manager.io", "acme.cert-manager.io"], "resources": ["*"]}]},
}
ACCEPTED["IPv6"] = {"listenAddress": "[::]"}
ACCEPTED["one address"] = {"listenAddress": "[fd00::1]"}
ACCEPTED["bytes as numbers"] = {
    "resources": {"requests": {"memory": 1 << 30}, "limits": {"memory": 6 << 30}},
    "config": {"cache": {"totalBytesMax": 2 << 30, "resourceBytesMax": 1 << 30}},
}

# Values that the chart must refuse, each with a part of the error.
REFUSED = [
    ({"replica": 3}, "replica"),
    ({"replicas": "three"}, "replicas"),
    ({"replicas": -1}, "replicas"),
    ({"image": {"repository": "weir", "tags": "1"}}, "tags"),
    ({"image": {"repository": ""}}, "repository"),
    ({"image": {"tag": "a tag"}}, "tag"),
    ({"image": {"digest": "0123"}}, "digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"config": {"caches": {}}}, "caches"),
    ({"config": {"cache": {"totalBytes": "1Gi"}}}, "totalBytes"),
    ({"config": {"cache": {"onRelist": "stop"}}}, "onRelist"),
    ({"config": {"server": {"shutdownDelay": "ten seconds"}}}, "shutdownDelay"),
    ({"config": {"authentication": {"mode": "sidecar"}}}, "mode"),
    ({"config": {"server": {"listeners": []}}}, "server"),
    ({"config": {"admin": {"listen": "none"}}}, "admin"),
    ({"config": "server: {}"}, "config"),
    ({"extraArgs": "--log-filter=debug"}, "extraArgs"),
    ({"tls": {"secretName": ""}}, "secretName"),
    ({"tls": {"certManager": {"enabled": True}}}, "issuerRef"),
    ({"frontProxy": {"secret": "a"}}, "secret"),
    ({"frontProxy": {"secretName": "A"}}, "secretName"),
    (
        {"frontProxy": {"secretName": "a"}, "config": {"authentication": {"impersonate": True}}},
        "excludes",
    ),
    ({"extraVolumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "hostPath"),
    ({"extraVolumes": [{"name": "tls", "secret": {"secretName": "a"}}]}, "extraVolumes"),
    ({"extraVolumes": [{"name": "a"}]}, "extraVolumes"),
    ({"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]}, "no volume"),
    ({"extraVolumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "b"}]}, "subPath"),
    ({"extraVolumeMounts": [{"name": "a", "mountPath": "/etc/weir/tls"}]}, "mountPath"),
    ({"env": [{"name": "1", "value": "a"}]}, "env"),
    ({"env": [{"name": "A"}]}, "env"),
    ({"rbac": {"create": "yes"}}, "create"),
    ({"rbac": {"impersonator": {"users": "jane"}}}, "users"),
    ({"proxyProtocol": {"trustedNetworks": "10.0.0.0/24"}}, "trustedNetworks"),
    ({"listenAddress": "::"}, "listenAddress"),
    ({"listenAddress": "weir.example"}, "listenAddress"),
    ({"listenAddress": "0.0.0.0:6440"}, "listenAddress"),
    ({"autoscaling": {"enabled": True, "minReplicas": 9}}, "less than"),
    ({"autoscaling": {"enabled": True, "cpuUtilization": 0}}, "cpuUtilization or metrics"),
    ({"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}}, "requests.cpu"),
    ({"autoscaling": {"targetCPU": 50}}, "targetCPU"),
    ({"rbac": {"extraRules": [{"apiGroups": [""], "resources": ["secrets"]}]}}, "rbac.secrets"),
    ({"rbac": {"extraRules": [{"apiGroups": [""], "resources": ["*"]}]}}, "rbac.secrets"),
    ({"rbac": {"extraRules": [{"apiGroups": ["*"], "resources": ["*"]}]}}, "apiGroups"),
    (
        {"rbac": {"extraRules": [{"apiGroups": ["a"], "resources": ["b"], "verbs": ["get"]}]}},
        "verbs",
    ),
    ({"service": {"type": "ExternalName"}}, "type"),
    ({"service": {"port": 70000}}, "port"),
    ({"service": {"trafficDistribution": "Nearest"}}, "trafficDistribution"),
    ({"pdb": {"maxUnavailable": "one"}}, "maxUnavailable"),
    ({"resources": {"limits": {"memory": "4 GB"}}}, "memory"),
    ({"resources": {"limit": {"memory": "4Gi"}}}, "limit"),
    ({"resources": {"limits": {"memory": "512Mi"}}}, "requests.memory"),
    ({"resources": {"limits": {"memory": 1 << 29}}}, "requests.memory"),
    ({"config": {"cache": {"resourceBytesMax": "2Gi"}}}, "more than cache.totalBytesMax"),
    ({"config": {"cache": {"historyBytesMax": 1 << 30}}}, "historyBytesMax"),
    ({"podAnnotations": {"a": 1}}, "podAnnotations"),
    ({"podLabels": {"app.kubernetes.io/name": "other"}}, "podLabels"),
    ({"podLabels": {"app.kubernetes.io/instance": "other"}}, "podLabels"),
    ({"topologySpreadConstraints": [{"maxSkew": 0}]}, "topologySpreadConstraints"),
    ({"networkPolicy": {"monitoringNamespace": "Monitoring!"}}, "monitoringNamespace"),
    ({"serviceMonitor": {"interval": "often"}}, "interval"),
    ({"prometheusRule": {"runbookUrl": "docs"}}, "runbookUrl"),
    ({"config": {"cache": {"totalBytesMax": "3Gi"}}}, "more than 70 %"),
    ({"config": {"server": {"shutdownTimeout": "10m"}}}, "must exceed"),
    ({"terminationGracePeriodSeconds": 130}, "must exceed"),
]
