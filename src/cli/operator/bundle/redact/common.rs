//! Names that identify nobody: those that every cluster has, and those that are ordinary words.

/// Whether every cluster has this name. It stays, so that a reader recognizes it.
pub(super) fn is_of_every_cluster(name: &str) -> bool {
    OF_EVERY_CLUSTER.contains(&name)
}

/// Whether a name is also a word of messages, such as a user called `admin`, or a number as short
/// as those of messages. It is replaced where it is all of a field of names, and stays within
/// texts, where nobody can tell that it is a name.
pub(super) fn is_word(name: &str) -> bool {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let length_min = if is_number { NUMBER_LENGTH_MIN } else { LENGTH_MIN };
    name.len() < length_min || WORDS.contains(&name.to_lowercase().as_str())
}

const OF_EVERY_CLUSTER: [&str; 38] = [
    "*",
    "-",
    "none",
    "stdout",
    "other",
    "localhost",
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "kubernetes",
    "system:anonymous",
    "system:unauthenticated",
    "system:authenticated",
    "system:masters",
    "system:nodes",
    "system:serviceaccounts",
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:kube-proxy",
    // kube-apiserver's FlowSchemas.
    "exempt",
    "probes",
    "system-leader-election",
    "endpoint-controller",
    "workload-leader-election",
    "system-node-high",
    "system-nodes",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-system-service-accounts",
    "service-accounts",
    "global-default",
    "catch-all",
    "leader-election",
    "node-high",
    "workload-high",
    "workload-low",
];

/// Verbs, resources, and words of Weir's messages.
const WORDS: [&str; 44] = [
    "admin",
    "agent",
    "all",
    "and",
    "api",
    "app",
    "apps",
    "cache",
    "client",
    "cluster",
    "configmaps",
    "controller",
    "create",
    "delete",
    "deployments",
    "error",
    "events",
    "flow",
    "for",
    "get",
    "group",
    "info",
    "kubernetes",
    "leases",
    "list",
    "local",
    "memory",
    "name",
    "node",
    "nodes",
    "pod",
    "pods",
    "root",
    "secrets",
    "server",
    "services",
    "system",
    "test",
    "the",
    "update",
    "upstream",
    "user",
    "watch",
    "weir",
];

const LENGTH_MIN: usize = 3;
/// Identifiers of accounts are longer; ports, counts and versions are not.
const NUMBER_LENGTH_MIN: usize = 6;
