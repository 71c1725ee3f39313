//! `upstream`: the API servers.

use std::path::PathBuf;

use crate::config::endpoints::EndpointsConfig;
use crate::config::kinds::{Derived, Maybe, Part};
use crate::config::scalars::{Flag, Plain};
use crate::config::section::section;

section! {
    /// The API server that Weir reads from and forwards to.
    pub struct UpstreamConfig {
        /// The kubeconfig, of which the current context counts. Defaults: $KUBECONFIG,
        /// ~/.kube/config, or the service account of the pod. A proxy before the API server is that
        /// of the kubeconfig (proxy-url), else that of HTTPS_PROXY and NO_PROXY, as for kubectl.
        restart kubeconfig: Option<PathBuf> = None, Maybe(Plain);

        /// The API servers. The server of the kubeconfig, or of the service account, is the only
        /// one unless others are named here; then it is the last resort. All have the certificate
        /// authority of the kubeconfig, and a certificate for the name of its server (or
        /// tls-server-name).
        restart endpoints: EndpointsConfig = EndpointsConfig::default(), Part;

        /// Whether HTTP/2 is used where the API server offers it. Even then each list that fills a
        /// cache uses an HTTP/1.1 connection.
        // One TLS connection carries many watches.
        restart http2: bool = true, Flag;

        /// The context in the kubeconfig, of the flag `--context`; `None` for the current one.
        restart context: Option<String> = None, Derived;
    }
}
