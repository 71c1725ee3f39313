//! The advice to the author of a client, in the words of their library.

use crate::flow::doctor::rule::Rule;

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// client-go.
    ClientGo,
    /// controller-runtime, which uses client-go.
    ControllerRuntime,
    /// kube-rs.
    KubeRs,
    /// The Python client.
    Python,
}

impl Library {
    /// All.
    pub const ALL: [Self; 4] =
        [Self::ClientGo, Self::ControllerRuntime, Self::KubeRs, Self::Python];

    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientGo => "client-go",
            Self::ControllerRuntime => "controller-runtime",
            Self::KubeRs => "kube-rs",
            Self::Python => "Python",
        }
    }

    /// Returns the libraries that a program with this user agent may use. kube-rs sends none of
    /// its own; client-go names the commit of Kubernetes; the Python client says `python`.
    pub fn guess(agent: &str) -> &'static [Self] {
        match agent {
            "" => &[Self::KubeRs],
            agent if agent.contains("python") => &[Self::Python],
            agent if agent.contains(" kubernetes/") => &[Self::ClientGo, Self::ControllerRuntime],
            _ => &Self::ALL,
        }
    }
}

impl Rule {
    /// Returns what it is called for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::PollList => "lists again and again instead of watching",
            Self::UnsetList => "lists without a resourceVersion",
            Self::UnpagedList => "lists much without pages",
            Self::RelistLoop => "informer lists again and again",
            Self::WatchChurn => "watches end after a short time",
            Self::NoGzip => "large lists without gzip",
            Self::Json => "JSON where protobuf would do",
        }
    }

    /// Returns the fix for a library.
    pub fn fix(self, library: Library) -> &'static str {
        use Library::{ClientGo, ControllerRuntime, KubeRs, Python};
        match (self, library) {
            (Self::PollList, ClientGo) => {
                "Use an informer and its lister (informers.NewSharedInformerFactory)."
            }
            (Self::PollList, ControllerRuntime) => {
                "Read with the manager's client, not with its APIReader."
            }
            (Self::PollList, KubeRs) => "Use reflector over watcher, and read its Store.",
            (Self::PollList, Python) => {
                "Use kubernetes.informer.SharedInformer, or list once and Watch from its resource_version."
            }
            (Self::UnsetList, ClientGo) => {
                "Set ListOptions{ResourceVersion: \"0\"} where a state of some seconds ago will do."
            }
            (Self::UnsetList, ControllerRuntime) => {
                "Read with the manager's cached client; with the APIReader, client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: \"0\"}}."
            }
            (Self::UnsetList, KubeRs) => {
                "Use ListParams::match_any(); for a watcher, Config::any_semantic()."
            }
            (Self::UnsetList, Python) => "Pass resource_version=\"0\" to the list.",
            (Self::UnpagedList, ClientGo) => {
                "Use pager.New with Limit: 500, or ResourceVersion \"0\" without a limit."
            }
            (Self::UnpagedList, ControllerRuntime) => {
                "Pass client.Limit(500) and client.Continue to the APIReader, or read with the cached client."
            }
            (Self::UnpagedList, KubeRs) => {
                "Use ListParams::limit(500) and continue_token; for a watcher, Config::page_size(500)."
            }
            (Self::UnpagedList, Python) => {
                "Pass limit=500 and _continue, or resource_version=\"0\" without a limit."
            }
            (Self::RelistLoop, ClientGo) => {
                "Share one SharedInformerFactory, and look in the log for why its watches end (410, time-outs, restarts)."
            }
            (Self::RelistLoop, ControllerRuntime) => {
                "Use one manager and its cache, and look in the log for why its watches end."
            }
            (Self::RelistLoop, KubeRs) => {
                "Keep one watcher with default_backoff(), and share its store; do not make a new one after an error."
            }
            (Self::RelistLoop, Python) => {
                "Keep one SharedInformer; after a 410 list again once, and resume from the new resource_version."
            }
            (Self::WatchChurn, ClientGo) => {
                "Leave TimeoutSeconds unset, reuse one clientset, and look at the idle time-outs of proxies."
            }
            (Self::WatchChurn, ControllerRuntime) => {
                "Keep the manager running, and look at the idle time-outs of proxies."
            }
            (Self::WatchChurn, KubeRs) => {
                "Keep one Client, leave watcher::Config::timeout at its default, and look at the idle time-outs of proxies."
            }
            (Self::WatchChurn, Python) => {
                "Pass a timeout_seconds of several minutes, and resume with the last resource_version."
            }
            (Self::NoGzip, ClientGo) => "Leave rest.Config.DisableCompression false.",
            (Self::NoGzip, ControllerRuntime) => {
                "Leave DisableCompression of the manager's rest.Config false."
            }
            (Self::NoGzip, KubeRs) => {
                "Turn on the feature gzip of kube-client, for a client that only lists."
            }
            (Self::NoGzip, Python) => {
                "api_client.set_default_header(\"Accept-Encoding\", \"gzip\"); answers are decoded by themselves."
            }
            (Self::Json, ClientGo) => {
                "Set rest.Config.ContentType to application/vnd.kubernetes.protobuf, and use typed clients."
            }
            (Self::Json, ControllerRuntime) => {
                "Use typed objects: the client then chooses protobuf for built-in kinds."
            }
            (Self::Json, KubeRs | Python) => "This library reads JSON only.",
        }
    }
}
