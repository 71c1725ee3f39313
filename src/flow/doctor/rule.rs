//! The names of the rules, the weights of their findings, and the advice to the author of a client,
//! in the words of their library.

weir_api::labels! {
    /// A habit that costs more than it must.
    pub enum Rule {
        /// The same list again and again, without a watch.
        PollList = "poll-list",
        /// A list without a resourceVersion.
        UnsetList = "unset-list",
        /// A large list without a limit, for which the API server reads etcd.
        UnpagedList = "unpaged-list",
        /// An informer that lists again and again.
        RelistLoop = "relist-loop",
        /// The same object again and again, without a watch.
        PollGet = "poll-get",
        /// Watches that end after a short time.
        WatchChurn = "watch-churn",
        /// Watches that are begun again at a resourceVersion that was answered with 410.
        DeadWatch = "dead-watch",
        /// Several watches that show the same to one process.
        TwinWatches = "twin-watches",
        /// A program on each node that reads the pods of all nodes.
        NodeAgent = "node-agent",
        /// Requests that come again before the `Retry-After` of their refusal is over.
        Retries = "retries",
        /// An API that the API server says is deprecated.
        Deprecated = "deprecated",
        /// Large lists that are not compressed.
        NoGzip = "no-gzip",
        /// JSON where the client could read protobuf.
        Json = "json",
        /// Whole objects, where metadata may be enough.
        WholeObjects = "whole-objects",
        /// No user agent, or only that of a library.
        NoAgent = "no-agent",
    }
}

weir_api::labels! {
    /// The weight of a finding.
    pub enum Weight {
        /// A hint.
        Info = "info",
        /// It costs the API server something all the time.
        Warning = "warning",
        /// It costs the API server a good part of a processor.
        Critical = "critical",
    }
}

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
    /// Returns what it is called for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::PollList => "lists again and again instead of watching",
            Self::UnsetList => "lists without a resourceVersion",
            Self::UnpagedList => "lists much without pages",
            Self::RelistLoop => "informer lists again and again",
            Self::PollGet => "gets the same object again and again instead of watching",
            Self::WatchChurn => "watches end after a short time",
            Self::DeadWatch => "watches again from a resourceVersion that is too old",
            Self::TwinWatches => "several watches of the same in one process",
            Self::NodeAgent => "reads the pods of all nodes on each node",
            Self::Retries => "comes back before Retry-After",
            Self::Deprecated => "uses a deprecated API",
            Self::NoGzip => "large lists without gzip",
            Self::Json => "JSON where protobuf would do",
            Self::WholeObjects => "whole objects where metadata may be enough",
            Self::NoAgent => "no user agent of its own",
        }
    }

    /// Whether it is about all that a client does, not about one resource.
    pub(super) fn is_of_client(self) -> bool {
        self == Self::NoAgent
    }

    /// Returns the fix for a library.
    pub fn fix(self, library: Library) -> &'static str {
        let [client_go, controller_runtime, kube_rs, python] = self.fixes();
        match library {
            Library::ClientGo => client_go,
            Library::ControllerRuntime => controller_runtime,
            Library::KubeRs => kube_rs,
            Library::Python => python,
        }
    }

    /// Returns the fixes for client-go, controller-runtime, kube-rs and Python.
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn fixes(self) -> [&'static str; 4] {
        match self {
            Self::PollList => [
                "Use an informer and its lister (informers.NewSharedInformerFactory).",
                "Read with the manager's client, not with its APIReader.",
                "Use reflector over watcher, and read its Store.",
                "Use kubernetes.informer.SharedInformer, or list once and Watch from its resource_version.",
            ],
            Self::UnsetList => [
                "Set ListOptions{ResourceVersion: \"0\"} where a state of some seconds ago will do.",
                "Read with the manager's cached client; with the APIReader, client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: \"0\"}}.",
                "Use ListParams::match_any(); for a watcher, Config::any_semantic().",
                "Pass resource_version=\"0\" to the list.",
            ],
            Self::UnpagedList => [
                "Use pager.New with Limit: 500, or ResourceVersion \"0\" without a limit.",
                "Pass client.Limit(500) and client.Continue to the APIReader, or read with the cached client.",
                "Use ListParams::limit(500) and continue_token; for a watcher, Config::page_size(500).",
                "Pass limit=500 and _continue, or resource_version=\"0\" without a limit.",
            ],
            Self::RelistLoop => [
                "Share one SharedInformerFactory, and look in the log for why its watches end (410, time-outs, restarts).",
                "Use one manager and its cache, and look in the log for why its watches end.",
                "Keep one watcher with default_backoff(), and share its store; do not make a new one after an error.",
                "Keep one SharedInformer; after a 410 list again once, and resume from the new resource_version.",
            ],
            Self::WatchChurn => [
                "Leave TimeoutSeconds unset, reuse one clientset, and look at the idle time-outs of proxies.",
                "Keep the manager running, and look at the idle time-outs of proxies.",
                "Keep one Client, leave watcher::Config::timeout at its default, and look at the idle time-outs of proxies.",
                "Pass a timeout_seconds of several minutes, and resume with the last resource_version.",
            ],
            Self::PollGet => [
                "Use an informer with the field selector metadata.name=NAME, or watchtools.UntilWithSync.",
                "Read with the manager's cached client; cache.Options.ByObject can keep this object alone.",
                "Use watch_object; await_condition where one state is waited for.",
                "Use Watch().stream(LIST, field_selector=\"metadata.name=NAME\").",
            ],
            Self::DeadWatch => [
                "Use an informer or a Reflector, which list again after 410; a loop of your own must list too.",
                "Use the manager's cache, which lists again after 410, instead of client.WithWatch in a loop.",
                "Use watcher, which lists again after 410, instead of Api::watch in a loop.",
                "After an ApiException with status 410, list again, and Watch from the new resource_version.",
            ],
            Self::TwinWatches => [
                "Share one SharedInformerFactory among all parts of the program.",
                "Use one manager, and its cache for all controllers.",
                "Use one reflector, and give its Store to all parts.",
                "Keep one SharedInformer or Watch, and hand its events to all threads.",
            ],
            Self::NodeAgent => [
                "Pass the field selector spec.nodeName=NODE (informers.WithTweakListOptions), with NODE from the downward API.",
                "Set cache.Options.ByObject for Pod to the field selector spec.nodeName=NODE, with NODE from the downward API.",
                "Use watcher::Config::fields(\"spec.nodeName=NODE\"), with NODE from the downward API.",
                "Pass field_selector=\"spec.nodeName=NODE\", with NODE from the downward API.",
            ],
            Self::Retries => [
                "Leave retries to rest.Request, which waits for Retry-After; put no loop around it.",
                "Return the error from Reconcile, so that the work queue waits; do not try again in it.",
                "Use default_backoff() for watchers; elsewhere wait as long as the header Retry-After says.",
                "After an ApiException with status 429 or 503, wait for e.headers[\"Retry-After\"] seconds.",
            ],
            Self::Deprecated => [
                "Use the typed client of the version that the warning names.",
                "Register and read the types of the version that the warning names.",
                "Use the types of k8s-openapi, or an ApiResource, of the version that the warning names.",
                "Use the API class of the version that the warning names.",
            ],
            Self::WholeObjects => [
                "Where labels and owners are enough, use metadata.NewForConfig and metadatainformer.",
                "Where labels and owners are enough, read PartialObjectMetadata (builder.OnlyMetadata), and nowhere the whole kind.",
                "Where labels and owners are enough, use metadata_watcher, or Api::list_metadata.",
                "Where labels and owners are enough, send Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1.",
            ],
            Self::NoAgent => [
                "Set rest.Config.UserAgent to name/version.",
                "Set UserAgent of the manager's rest.Config to name/version.",
                "Push (USER_AGENT, \"name/version\") to Config::headers; kube-rs sends none by itself.",
                "Set api_client.user_agent = \"name/version\".",
            ],
            Self::NoGzip => [
                "Leave rest.Config.DisableCompression false.",
                "Leave DisableCompression of the manager's rest.Config false.",
                "Turn on the feature gzip of kube-client, for a client that only lists.",
                "api_client.set_default_header(\"Accept-Encoding\", \"gzip\"); answers are decoded by themselves.",
            ],
            Self::Json => [
                "Set rest.Config.ContentType to application/vnd.kubernetes.protobuf, and use typed clients.",
                "Use typed objects: the client then chooses protobuf for built-in kinds.",
                "This library reads JSON only.",
                "This library reads JSON only.",
            ],
        }
    }
}
