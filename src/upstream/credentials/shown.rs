//! What connections show of who sends on them (design, section 8).
//!
//! kube-apiserver looks at a client certificate before it looks at a token, so a connection with Weir's certificate makes every request
//! on it Weir's own, whatever else it carries. What relays a client's credential, or names the client by a front proxy's headers, must
//! therefore have nothing of Weir's own: not the certificate, not an `Authorization`, no impersonation. They are taken out of what was read
//! before anything is built of it (no exec plugin is run for them either), so that no later step could let them through. And each has a
//! TLS configuration of its own, so that no session is resumed in which another certificate was shown.

use kube_client::config::AuthInfo;

use super::Endpoint;
use super::source::Loaded;
use crate::config::FrontProxyConfig;
use crate::upstream::error::UpstreamError;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// All that the kubeconfig or the pod has: Weir's own identity.
    Own,
    /// Nothing; who sends is in each request.
    Bare,
    /// The certificate of a front proxy; who sends is in the headers that it may set.
    FrontProxy(FrontProxyConfig),
}

impl Shown {
    /// A cluster, with only this to be shown to it.
    pub(super) fn beside(&self, cluster: &Loaded) -> Loaded {
        let mut beside = cluster.cluster();
        if let Self::FrontProxy(files) = self {
            beside.origin = "authentication.frontProxy".to_owned();
            beside.config.auth_info = AuthInfo {
                client_certificate: Some(files.certificate.display().to_string()),
                client_key: Some(files.key.display().to_string()),
                ..AuthInfo::default()
            };
            beside.certificate_files = vec![files.certificate.clone(), files.key.clone()];
        }
        beside
    }

    /// Whether it can be shown there at all.
    pub(super) fn check(&self, endpoint: &Endpoint) -> Result<(), UpstreamError> {
        if matches!(self, Self::FrontProxy(_)) && !endpoint.https {
            return Err(UpstreamError::Credentials(format!(
                "authentication.frontProxy: {endpoint} is plain HTTP, and takes no certificate"
            )));
        }
        Ok(())
    }

    /// The word in metrics.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Bare => "bare",
            Self::FrontProxy(_) => "front-proxy",
        }
    }
}
