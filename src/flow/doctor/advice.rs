//! The advice to the author of a client, in the words of their library.

use crate::doctor::rule::Rule;

weir_api::labels! {
    /// A client library.
    pub enum Library {
        /// client-go.
        ClientGo = "client-go",
        /// controller-runtime, which uses client-go.
        ControllerRuntime = "controller-runtime",
        /// kube-rs.
        KubeRs = "kube-rs",
        /// The Python client.
        Python = "Python",
    }
}

impl Library {
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
    /// Returns the fix for a library.
    #[expect(clippy::too_many_lines, reason = "a table")]
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
            (Self::PollGet, ClientGo) => {
                "Use an informer with the field selector metadata.name=NAME, or watchtools.UntilWithSync."
            }
            (Self::PollGet, ControllerRuntime) => {
                "Read with the manager's cached client; cache.Options.ByObject can keep this object alone."
            }
            (Self::PollGet, KubeRs) => {
                "Use watch_object; await_condition where one state is waited for."
            }
            (Self::PollGet, Python) => {
                "Use Watch().stream(LIST, field_selector=\"metadata.name=NAME\")."
            }
            (Self::DeadWatch, ClientGo) => {
                "Use an informer or a Reflector, which list again after 410; a loop of your own must list too."
            }
            (Self::DeadWatch, ControllerRuntime) => {
                "Use the manager's cache, which lists again after 410, instead of client.WithWatch in a loop."
            }
            (Self::DeadWatch, KubeRs) => {
                "Use watcher, which lists again after 410, instead of Api::watch in a loop."
            }
            (Self::DeadWatch, Python) => {
                "After an ApiException with status 410, list again, and Watch from the new resource_version."
            }
            (Self::TwinWatches, ClientGo) => {
                "Share one SharedInformerFactory among all parts of the program."
            }
            (Self::TwinWatches, ControllerRuntime) => {
                "Use one manager, and its cache for all controllers."
            }
            (Self::TwinWatches, KubeRs) => "Use one reflector, and give its Store to all parts.",
            (Self::TwinWatches, Python) => {
                "Keep one SharedInformer or Watch, and hand its events to all threads."
            }
            (Self::NodeAgent, ClientGo) => {
                "Pass the field selector spec.nodeName=NODE (informers.WithTweakListOptions), with NODE from the downward API."
            }
            (Self::NodeAgent, ControllerRuntime) => {
                "Set cache.Options.ByObject for Pod to the field selector spec.nodeName=NODE, with NODE from the downward API."
            }
            (Self::NodeAgent, KubeRs) => {
                "Use watcher::Config::fields(\"spec.nodeName=NODE\"), with NODE from the downward API."
            }
            (Self::NodeAgent, Python) => {
                "Pass field_selector=\"spec.nodeName=NODE\", with NODE from the downward API."
            }
            (Self::Retries, ClientGo) => {
                "Leave retries to rest.Request, which waits for Retry-After; put no loop around it."
            }
            (Self::Retries, ControllerRuntime) => {
                "Return the error from Reconcile, so that the work queue waits; do not try again in it."
            }
            (Self::Retries, KubeRs) => {
                "Use default_backoff() for watchers; elsewhere wait as long as the header Retry-After says."
            }
            (Self::Retries, Python) => {
                "After an ApiException with status 429 or 503, wait for e.headers[\"Retry-After\"] seconds."
            }
            (Self::Deprecated, ClientGo) => {
                "Use the typed client of the version that the warning names."
            }
            (Self::Deprecated, ControllerRuntime) => {
                "Register and read the types of the version that the warning names."
            }
            (Self::Deprecated, KubeRs) => {
                "Use the types of k8s-openapi, or an ApiResource, of the version that the warning names."
            }
            (Self::Deprecated, Python) => {
                "Use the API class of the version that the warning names."
            }
            (Self::WholeObjects, ClientGo) => {
                "Where labels and owners are enough, use metadata.NewForConfig and metadatainformer."
            }
            (Self::WholeObjects, ControllerRuntime) => {
                "Where labels and owners are enough, read PartialObjectMetadata (builder.OnlyMetadata), and nowhere the whole kind."
            }
            (Self::WholeObjects, KubeRs) => {
                "Where labels and owners are enough, use metadata_watcher, or Api::list_metadata."
            }
            (Self::WholeObjects, Python) => {
                "Where labels and owners are enough, send Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1."
            }
            (Self::NoAgent, ClientGo) => "Set rest.Config.UserAgent to name/version.",
            (Self::NoAgent, ControllerRuntime) => {
                "Set UserAgent of the manager's rest.Config to name/version."
            }
            (Self::NoAgent, KubeRs) => {
                "Push (USER_AGENT, \"name/version\") to Config::headers; kube-rs sends none by itself."
            }
            (Self::NoAgent, Python) => "Set api_client.user_agent = \"name/version\".",
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
