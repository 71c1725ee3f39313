//! The table of built-in kinds: their discovery, and the part of their bookmarks after `metadata`
//! (`docs/semantics.md` Appendix A; recorded from a live 1.36.2).

use super::kind::Kind;

/// A row of the table.
pub(super) struct BuiltInKind {
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    kind: &'static str,
    namespaced: bool,
    /// Short names, separated by commas.
    short: &'static str,
    /// Subresources, separated by commas.
    subresources: &'static str,
    /// Whether it is in the category `all`.
    in_all: bool,
    bookmark_tail: &'static str,
}

impl BuiltInKind {
    /// Returns the kind for the registry.
    pub(super) fn to_kind(&self) -> Kind {
        let words = |list: &str| {
            list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let endpoints =
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
        Kind {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            resource: self.resource.to_owned(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            singular: self.kind.to_lowercase(),
            namespaced: self.namespaced,
            short_names: words(self.short),
            categories: if self.in_all { vec!["all".to_owned()] } else { Vec::new() },
            subresources: words(self.subresources),
            custom: false,
            review: self.bookmark_tail == REVIEW,
            bookmark_tail: self.bookmark_tail.to_owned(),
            selectable: Vec::new(),
            indexed: Vec::new(),
            columns: Vec::new(),
            schema: serde_json::Value::Null,
            defaults: false,
            warning: (self.resource == "endpoints").then(|| endpoints.to_owned()),
        }
    }
}

/// Returns the row of a stored kind.
const fn row(
    place: (&'static str, &'static str),
    resource: &'static str,
    kind: &'static str,
    namespaced: bool,
    words: (&'static str, &'static str),
    bookmark_tail: &'static str,
) -> BuiltInKind {
    let (group, version) = place;
    let (short, subresources) = words;
    BuiltInKind {
        group,
        version,
        resource,
        kind,
        namespaced,
        short,
        subresources,
        in_all: false,
        bookmark_tail,
    }
}

/// Adds a kind to the category `all`, which `kubectl get all` lists.
const fn in_all_category(mut row: BuiltInKind) -> BuiltInKind {
    row.in_all = true;
    row
}

/// Marks a kind that can only be created.
const REVIEW: &str = "review";

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const BATCH: (&str, &str) = ("batch", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");
const NETWORKING: (&str, &str) = ("networking.k8s.io", "v1");
const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");
const ADMISSION: (&str, &str) = ("admissionregistration.k8s.io", "v1");

const NODE_TAIL: &str = r#""spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#;
const EVENT_TAIL: &str = r#""involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":"""#;
const DAEMON_SET_TAIL: &str = r#""spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}"#;
const DEPLOYMENT_TAIL: &str = r#""spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}"#;
const REPLICA_SET_TAIL: &str = r#""spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"replicas":0}"#;
const STATEFUL_SET_TAIL: &str = r#""spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"serviceName":"","updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}"#;
const CRON_JOB_TAIL: &str = r#""spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}},"status":{}"#;
const JOB_TAIL: &str =
    r#""spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}"#;
const HPA_TAIL: &str = r#""spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"status":{"desiredReplicas":0,"currentMetrics":null}"#;
const CRD_TAIL: &str = r#""spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}"#;
const PDB_TAIL: &str = r#""spec":{},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}"#;
const SPEC_STATUS: &str = r#""spec":{},"status":{}"#;
const LOAD_BALANCER: &str = r#""spec":{},"status":{"loadBalancer":{}}"#;
const ROLE_REF: &str = r#""roleRef":{"apiGroup":"","kind":"","name":""}"#;
const RULES: &str = r#""rules":null"#;

/// All built-in kinds, in the order of discovery.
pub(super) const BUILT_IN: &[BuiltInKind] = &[
    row(CORE, "configmaps", "ConfigMap", true, ("cm", ""), ""),
    row(CORE, "endpoints", "Endpoints", true, ("ep", ""), ""),
    row(CORE, "events", "Event", true, ("ev", ""), EVENT_TAIL),
    row(CORE, "limitranges", "LimitRange", true, ("limits", ""), r#""spec":{"limits":null}"#),
    row(CORE, "namespaces", "Namespace", false, ("ns", "finalize,status"), SPEC_STATUS),
    row(CORE, "nodes", "Node", false, ("no", "proxy,status"), NODE_TAIL),
    row(
        CORE,
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        true,
        ("pvc", "status"),
        r#""spec":{"resources":{}},"status":{}"#,
    ),
    row(CORE, "persistentvolumes", "PersistentVolume", false, ("pv", "status"), SPEC_STATUS),
    in_all_category(row(
        CORE,
        "pods",
        "Pod",
        true,
        ("po", "attach,binding,eviction,exec,log,portforward,proxy,status"),
        r#""spec":{"containers":null},"status":{}"#,
    )),
    in_all_category(row(
        CORE,
        "replicationcontrollers",
        "ReplicationController",
        true,
        ("rc", "scale,status"),
        r#""spec":{},"status":{"replicas":0}"#,
    )),
    row(CORE, "resourcequotas", "ResourceQuota", true, ("quota", "status"), SPEC_STATUS),
    row(CORE, "secrets", "Secret", true, ("", ""), ""),
    row(CORE, "serviceaccounts", "ServiceAccount", true, ("sa", "token"), ""),
    in_all_category(row(CORE, "services", "Service", true, ("svc", "proxy,status"), LOAD_BALANCER)),
    row(
        ("apiregistration.k8s.io", "v1"),
        "apiservices",
        "APIService",
        false,
        ("", "status"),
        r#""spec":{"groupPriorityMinimum":0,"versionPriority":0},"status":{}"#,
    ),
    row(
        APPS,
        "controllerrevisions",
        "ControllerRevision",
        true,
        ("", ""),
        r#""data":null,"revision":0"#,
    ),
    in_all_category(row(APPS, "daemonsets", "DaemonSet", true, ("ds", "status"), DAEMON_SET_TAIL)),
    in_all_category(row(
        APPS,
        "deployments",
        "Deployment",
        true,
        ("deploy", "scale,status"),
        DEPLOYMENT_TAIL,
    )),
    in_all_category(row(
        APPS,
        "replicasets",
        "ReplicaSet",
        true,
        ("rs", "scale,status"),
        REPLICA_SET_TAIL,
    )),
    in_all_category(row(
        APPS,
        "statefulsets",
        "StatefulSet",
        true,
        ("sts", "scale,status"),
        STATEFUL_SET_TAIL,
    )),
    row(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", false, ("", ""), REVIEW),
    row(AUTHENTICATION, "tokenreviews", "TokenReview", false, ("", ""), REVIEW),
    row(
        AUTHORIZATION,
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
        ("", ""),
        REVIEW,
    ),
    row(
        AUTHORIZATION,
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
        ("", ""),
        REVIEW,
    ),
    row(
        AUTHORIZATION,
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
        ("", ""),
        REVIEW,
    ),
    row(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview", false, ("", ""), REVIEW),
    in_all_category(row(
        ("autoscaling", "v2"),
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        true,
        ("hpa", "status"),
        HPA_TAIL,
    )),
    in_all_category(row(BATCH, "cronjobs", "CronJob", true, ("cj", "status"), CRON_JOB_TAIL)),
    in_all_category(row(BATCH, "jobs", "Job", true, ("", "status"), JOB_TAIL)),
    row(NETWORKING, "ingressclasses", "IngressClass", false, ("", ""), r#""spec":{}"#),
    row(NETWORKING, "ingresses", "Ingress", true, ("ing", "status"), LOAD_BALANCER),
    row(
        NETWORKING,
        "networkpolicies",
        "NetworkPolicy",
        true,
        ("netpol", ""),
        r#""spec":{"podSelector":{}}"#,
    ),
    row(
        ("policy", "v1"),
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        true,
        ("pdb", "status"),
        PDB_TAIL,
    ),
    row(RBAC, "clusterrolebindings", "ClusterRoleBinding", false, ("", ""), ROLE_REF),
    row(RBAC, "clusterroles", "ClusterRole", false, ("", ""), RULES),
    row(RBAC, "rolebindings", "RoleBinding", true, ("", ""), ROLE_REF),
    row(RBAC, "roles", "Role", true, ("", ""), RULES),
    row(STORAGE, "csinodes", "CSINode", false, ("", ""), r#""spec":{"drivers":null}"#),
    row(STORAGE, "storageclasses", "StorageClass", false, ("sc", ""), r#""provisioner":"""#),
    row(
        ADMISSION,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        false,
        ("", ""),
        "",
    ),
    row(
        ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        false,
        ("", ""),
        "",
    ),
    row(
        ("apiextensions.k8s.io", "v1"),
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
        ("crd,crds", "status"),
        CRD_TAIL,
    ),
    row(
        ("scheduling.k8s.io", "v1"),
        "priorityclasses",
        "PriorityClass",
        false,
        ("pc", ""),
        r#""value":0"#,
    ),
    row(("coordination.k8s.io", "v1"), "leases", "Lease", true, ("", ""), r#""spec":{}"#),
    row(
        ("discovery.k8s.io", "v1"),
        "endpointslices",
        "EndpointSlice",
        true,
        ("", ""),
        r#""addressType":"","endpoints":null,"ports":null"#,
    ),
];
