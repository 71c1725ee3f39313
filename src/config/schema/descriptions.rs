//! Descriptions of settings for which the example configurations have no comment of their own.

/// The settings that no example has a comment for, or only one that is about more.
pub(super) const DESCRIPTIONS: &[(&str, &str)] = &[
    ("apiVersion", "The version of the file's format."),
    ("kind", "The kind of the file."),
    (
        "server.listeners.listen",
        "The address: https://ADDRESS:PORT, http://ADDRESS:PORT or unix://PATH.",
    ),
    ("admin.listen", "ADDRESS:PORT of health and metrics, or none."),
    ("upstream.context", "The context in the kubeconfig. The default is its current one."),
    ("cache.exclude", "Resources that are not cached; it overrides cache.include."),
    ("authentication.mode", "sidecar: clients are not authenticated. gateway: each request is."),
    ("authentication.requestHeader", "Front proxies, in place of the cluster's own setting."),
    ("authorization", "What clients may do (gateway)."),
    ("authorization.rbac.enabled", "Whether Weir decides by the cluster's roles and bindings."),
    ("audit.policy.rules", "The first rule that matches a request decides."),
    ("flowControl.levels", "Priority levels beside the cluster's, for the rules."),
    ("flowControl.levels.limited", "As spec.limited of a PriorityLevelConfiguration."),
    ("flowControl.rules", "Rules for what FlowSchemas cannot say: bans, rates, pages, levels."),
    ("flowControl.rules.match", "As spec.rules of a FlowSchema. Without it, every request."),
    (
        "server.listeners.certificate.certificateFile",
        "The certificate that Weir shows, with its chain, in PEM. It is read again when it changes.",
    ),
    (
        "server.listeners.certificate.privateKeyFile",
        "The key of certificateFile, in PEM. One of both alone is an error.",
    ),
    (
        "server.listeners.certificate.caFile",
        "The CA that `weir serve --write-kubeconfig` gives clients, in PEM. The default is the last certificate of certificateFile.",
    ),
    (
        "server.listeners.certificate.generatedNames",
        "DNS names and IP addresses of a generated certificate, beside localhost and the loopback addresses.",
    ),
    (
        "server.listeners.proxyProtocol.trustedNetworks",
        "Networks in CIDR notation, such as 10.0.0.0/8, whose peers send the header.",
    ),
    (
        "authentication.requestHeader.clientCAFile",
        "The CA of front proxies' client certificates, in PEM.",
    ),
    (
        "authentication.frontProxy.certificateFile",
        "The client certificate that the API server trusts as a front proxy's, in PEM.",
    ),
    ("authentication.frontProxy.privateKeyFile", "The key of certificateFile, in PEM."),
    (
        "authentication.impersonate",
        "Whether requests of users with a client certificate are forwarded with Weir's own identity and Impersonate-* headers, where there is no frontProxy.",
    ),
    (
        "authorization.rbac.checkOneIn",
        "The API server is asked too for one of so many decisions by roles, and both are compared.",
    ),
    ("audit.policy.rules.resources.group", "The API group; empty for the core group."),
    (
        "audit.policy.rules.resources.resources",
        "Resources of the group, also with a subresource: pods, pods/log. Empty for all.",
    ),
    ("audit.policy.rules.resources.resourceNames", "Names of objects. Empty for all."),
    (
        "flowControl.mode",
        "off: costs are not added up. observe: they are, and it is counted who would wait. enforce: forwarded requests wait for seats of the API server. The default of a gateway is enforce, that of a sidecar off.",
    ),
    ("flowControl.levels.name", "The name, by which rules send requests to the level."),
    (
        "flowControl.levels.rank",
        "The level of kube-apiserver as which it ranks when Weir itself is overloaded. The default is catch-all.",
    ),
    (
        "flowControl.levels.limited.nominalConcurrencyShares",
        "The level's share of the seats, as a number beside those of the other levels.",
    ),
    (
        "flowControl.levels.limited.lendablePercent",
        "How much of its seats other levels may borrow, in percent.",
    ),
    (
        "flowControl.levels.limited.borrowingLimitPercent",
        "How much it may borrow, in percent of its own seats. Without it there is no limit.",
    ),
    (
        "flowControl.levels.limited.limitResponse",
        "What happens to a request for which the level has no seats.",
    ),
    ("flowControl.levels.limited.limitResponse.type", "Queue: it waits. Reject: it gets 429."),
    (
        "flowControl.levels.limited.limitResponse.queuing",
        "The queues of a level whose type is Queue.",
    ),
    ("flowControl.levels.limited.limitResponse.queuing.queues", "The number of queues."),
    (
        "flowControl.levels.limited.limitResponse.queuing.handSize",
        "The number of queues among which a flow's requests choose the shortest.",
    ),
    (
        "flowControl.levels.limited.limitResponse.queuing.queueLengthLimit",
        "The most requests that wait in a queue.",
    ),
    (
        "cache.dropManagedFields.userAgents",
        "User agents: a product such as kubectl/v1.36.0, or what it begins with and *.",
    ),
    (
        "cache.dropManagedFields.resources",
        "RESOURCE or GROUP/RESOURCE, as in cache.include. None for all.",
    ),
    ("flowControl.rules.name", "The name, in metrics and refusals."),
    (
        "flowControl.rules.match.subjects",
        "The users that the policy is for. One that fits is enough.",
    ),
    (
        "flowControl.rules.match.subjects.kind",
        "User, Group or ServiceAccount: the one of the next three fields that counts.",
    ),
    ("flowControl.rules.match.subjects.user", "A user, for the kind User."),
    ("flowControl.rules.match.subjects.user.name", "The user's name, or * for all."),
    ("flowControl.rules.match.subjects.group", "A group, for the kind Group."),
    ("flowControl.rules.match.subjects.group.name", "The group's name, or * for all."),
    (
        "flowControl.rules.match.subjects.serviceAccount",
        "A service account, for the kind ServiceAccount.",
    ),
    (
        "flowControl.rules.match.subjects.serviceAccount.namespace",
        "The service account's namespace.",
    ),
    (
        "flowControl.rules.match.subjects.serviceAccount.name",
        "The service account's name, or * for all of the namespace.",
    ),
    (
        "flowControl.rules.match.resourceRules",
        "Requests for resources that the policy is for. One that fits is enough.",
    ),
    ("flowControl.rules.match.resourceRules.verbs", "Verbs such as list and watch, or * for all."),
    (
        "flowControl.rules.match.resourceRules.apiGroups",
        "API groups, an empty text for the core group, or * for all.",
    ),
    (
        "flowControl.rules.match.resourceRules.resources",
        "Resources, also with a subresource (nodes/status), or * for all.",
    ),
    (
        "flowControl.rules.match.resourceRules.namespaces",
        "Namespaces of the requests, or * for all. Without it, requests in a namespace do not match.",
    ),
    (
        "flowControl.rules.match.resourceRules.clusterScope",
        "Whether requests without a namespace match.",
    ),
    (
        "flowControl.rules.match.nonResourceRules",
        "Requests for paths that are no resource's. One that fits is enough.",
    ),
    ("flowControl.rules.match.nonResourceRules.verbs", "Verbs such as get, or * for all."),
    (
        "flowControl.rules.match.nonResourceRules.nonResourceURLs",
        "Paths such as /healthz or /metrics/*, or * for all.",
    ),
    (
        "flowControl.rules.userAgents",
        "First products of User-Agents, such as kubectl/*. Without any, every User-Agent matches.",
    ),
    ("flowControl.rules.mode", "enforce (the default), or observe: the effect is only counted."),
    (
        "flowControl.rules.scope",
        "all (the default): also requests that a cache answers. upstream: only those that are forwarded.",
    ),
    ("flowControl.rules.action", "deny: the requests get 403."),
    (
        "flowControl.rules.limits",
        "Limits of each flow. What is beyond them gets 429 with Retry-After.",
    ),
    ("flowControl.rules.limits.requestsPerSecond", "Requests in a second, at least 1."),
    (
        "flowControl.rules.limits.burst",
        "Requests that may come at once. The default is requestsPerSecond.",
    ),
    ("flowControl.rules.limits.bytesPerSecond", "Bytes of responses in a second, such as 10Mi."),
    ("flowControl.rules.limits.watches", "Open watches."),
    (
        "flowControl.rules.limits.unpagedLists",
        "forbid: lists need a limit. Or a size: so many bytes may be listed without one.",
    ),
    (
        "flowControl.rules.level",
        "The priority level in which requests wait that are forwarded (gateway).",
    ),
    (
        "flowControl.rules.distinguisher",
        "What tells flows apart, each of which has limits of its own: ByUser (the default), ByNamespace, ByUserAgent, ByUserAndAgent or None.",
    ),
    ("logging", "The log, on standard error."),
];
