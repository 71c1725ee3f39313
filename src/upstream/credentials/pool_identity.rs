//! The identity of a pool of connections.
//!
//! kube-apiserver evaluates a client certificate before a token. On a connection with Weir's
//! certificate, every request is therefore Weir's own, whatever else it carries. Connections that
//! relay a client's credential, or that name the client in a front proxy's headers, must not carry
//! anything of Weir's own: no certificate, no `Authorization`, no impersonation. These are removed
//! from the configuration before anything is built from it (no exec plugin is run, either), so that
//! no later step can add them. Each pool has its own TLS configuration, so that no session is
//! resumed in which another certificate was presented
//! (`docs/decisions/connection-pools.md`).

use kube_client::config::AuthInfo;

use super::endpoint::Endpoint;
use super::loaded_config::LoadedConfig;
use crate::config::FrontProxyConfig;
use crate::upstream::error::UpstreamError;

/// The identity that connections present to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoolIdentity {
    /// Weir's own identity: all credentials of the kubeconfig or the pod.
    Own,
    /// No credentials: each request carries its client's own.
    Bare,
    /// The certificate of a front proxy. The client is named in the headers that it may set.
    FrontProxy(FrontProxyConfig),
}

impl PoolIdentity {
    /// Returns the configuration of `cluster` with the credentials of this identity.
    pub(super) fn apply_to(&self, cluster: &LoadedConfig) -> LoadedConfig {
        let mut config = cluster.cluster();
        if let Self::FrontProxy(files) = self {
            config.origin = "authentication.frontProxy".to_owned();
            config.config.auth_info = AuthInfo {
                client_certificate: Some(files.certificate.display().to_string()),
                client_key: Some(files.key.display().to_string()),
                ..AuthInfo::default()
            };
            config.certificate_files = vec![files.certificate.clone(), files.key.clone()];
        }
        config
    }

    /// Returns an error if the identity cannot be used with `endpoint`.
    pub(super) fn check(&self, endpoint: &Endpoint) -> Result<(), UpstreamError> {
        if matches!(self, Self::FrontProxy(_)) && !endpoint.https {
            return Err(UpstreamError::Credentials(format!(
                "authentication.frontProxy: {endpoint} is plain HTTP, which has no client certificates"
            )));
        }
        Ok(())
    }

    /// Returns the label value in metrics.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Bare => "bare",
            Self::FrontProxy(_) => "front-proxy",
        }
    }
}
