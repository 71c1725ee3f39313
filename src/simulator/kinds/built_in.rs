//! The table of built-in kinds: their discovery, and the part of their bookmarks after `metadata`
//! (`docs/semantics.md` Appendix A; recorded from a live 1.36.2).

use super::kind::Kind;

/// All built-in kinds, in the order of discovery, a line each: apiVersion, plural name, kind, scope
/// (with `*` if it is in the category `all`, which `kubectl get all` lists), short names,
/// subresources, and the part of its bookmarks after `metadata`. `-` is nothing, and
/// [`REVIEW`] in place of the last marks a kind that can only be created.
const TABLE: &str = r#"v1 configmaps ConfigMap namespaced cm - -
v1 endpoints Endpoints namespaced ep - -
v1 events Event namespaced ev - "involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""
v1 limitranges LimitRange namespaced limits - "spec":{"limits":null}
v1 namespaces Namespace cluster ns finalize,status "spec":{},"status":{}
v1 nodes Node cluster no proxy,status "spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}
v1 persistentvolumeclaims PersistentVolumeClaim namespaced pvc status "spec":{"resources":{}},"status":{}
v1 persistentvolumes PersistentVolume cluster pv status "spec":{},"status":{}
v1 pods Pod namespaced* po attach,binding,eviction,exec,log,portforward,proxy,status "spec":{"containers":null},"status":{}
v1 replicationcontrollers ReplicationController namespaced* rc scale,status "spec":{},"status":{"replicas":0}
v1 resourcequotas ResourceQuota namespaced quota status "spec":{},"status":{}
v1 secrets Secret namespaced - - -
v1 serviceaccounts ServiceAccount namespaced sa token -
v1 services Service namespaced* svc proxy,status "spec":{},"status":{"loadBalancer":{}}
apiregistration.k8s.io/v1 apiservices APIService cluster - status "spec":{"groupPriorityMinimum":0,"versionPriority":0},"status":{}
apps/v1 controllerrevisions ControllerRevision namespaced - - "data":null,"revision":0
apps/v1 daemonsets DaemonSet namespaced* ds status "spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}
apps/v1 deployments Deployment namespaced* deploy scale,status "spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}
apps/v1 replicasets ReplicaSet namespaced* rs scale,status "spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"replicas":0}
apps/v1 statefulsets StatefulSet namespaced* sts scale,status "spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"serviceName":"","updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}
authentication.k8s.io/v1 selfsubjectreviews SelfSubjectReview cluster - - review
authentication.k8s.io/v1 tokenreviews TokenReview cluster - - review
authorization.k8s.io/v1 localsubjectaccessreviews LocalSubjectAccessReview namespaced - - review
authorization.k8s.io/v1 selfsubjectaccessreviews SelfSubjectAccessReview cluster - - review
authorization.k8s.io/v1 selfsubjectrulesreviews SelfSubjectRulesReview cluster - - review
authorization.k8s.io/v1 subjectaccessreviews SubjectAccessReview cluster - - review
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler namespaced* hpa status "spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"status":{"desiredReplicas":0,"currentMetrics":null}
batch/v1 cronjobs CronJob namespaced* cj status "spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}},"status":{}
batch/v1 jobs Job namespaced* - status "spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}
networking.k8s.io/v1 ingressclasses IngressClass cluster - - "spec":{}
networking.k8s.io/v1 ingresses Ingress namespaced ing status "spec":{},"status":{"loadBalancer":{}}
networking.k8s.io/v1 networkpolicies NetworkPolicy namespaced netpol - "spec":{"podSelector":{}}
policy/v1 poddisruptionbudgets PodDisruptionBudget namespaced pdb status "spec":{},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding cluster - - "roleRef":{"apiGroup":"","kind":"","name":""}
rbac.authorization.k8s.io/v1 clusterroles ClusterRole cluster - - "rules":null
rbac.authorization.k8s.io/v1 rolebindings RoleBinding namespaced - - "roleRef":{"apiGroup":"","kind":"","name":""}
rbac.authorization.k8s.io/v1 roles Role namespaced - - "rules":null
storage.k8s.io/v1 csinodes CSINode cluster - - "spec":{"drivers":null}
storage.k8s.io/v1 storageclasses StorageClass cluster sc - "provisioner":""
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration cluster - - -
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration cluster - - -
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition cluster crd,crds status "spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}
scheduling.k8s.io/v1 priorityclasses PriorityClass cluster pc - "value":0
coordination.k8s.io/v1 leases Lease namespaced - - "spec":{}
discovery.k8s.io/v1 endpointslices EndpointSlice namespaced - - "addressType":"","endpoints":null,"ports":null"#;

const REVIEW: &str = "review";

/// Returns all built-in kinds, in the order of discovery.
pub(super) fn built_in() -> impl Iterator<Item = Kind> {
    TABLE.lines().map(|line| {
        let mut columns = line.split(' ').map(|column| if column == "-" { "" } else { column });
        let mut column = || columns.next().unwrap_or_default();
        let api_version = column();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (resource, kind, scope) = (column(), column(), column());
        let (short_names, subresources, bookmark_tail) = (column(), column(), column());
        Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            singular: kind.to_lowercase(),
            namespaced: scope.starts_with("namespaced"),
            short_names: words(short_names),
            categories: words(if scope.ends_with('*') { "all" } else { "" }),
            subresources: words(subresources),
            custom: false,
            review: bookmark_tail == REVIEW,
            bookmark_tail: bookmark_tail.to_owned(),
            selectable: Vec::new(),
            indexed: Vec::new(),
            columns: Vec::new(),
            schema: serde_json::Value::Null,
            defaults: false,
            warning: (resource == "endpoints").then(|| {
                "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
                    .to_owned()
            }),
        }
    })
}

fn words(list: &str) -> Vec<String> {
    list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
