//! The credentials for another Weir, which authenticates them as those of any client.
//!
//! Weir's own token or certificate goes only over TLS, to a server whose certificate the configured
//! authority has signed for the configured name. Without TLS, on a loopback address, there are no
//! credentials. Settings of the kubeconfig that weaken its TLS have no effect here.

use std::path::PathBuf;

use kube_client::Config;
use kube_client::config::AuthInfo;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::loaded_config::LoadedConfig;
use crate::config::siblings::SiblingCertificate;
use crate::upstream::error::UpstreamError;

/// Another Weir, and how it is known.
#[derive(Clone, Debug)]
pub(crate) struct SiblingServer {
    /// Its URL.
    pub(crate) url: String,
    /// The name in its certificate; `None` for the host of the URL.
    pub(crate) server_name: Option<String>,
    /// The authority that signed it, PEM; `None` only without TLS.
    pub(crate) ca: Option<PathBuf>,
    /// The client certificate; `None` for Weir's own credentials.
    pub(crate) certificate: Option<SiblingCertificate>,
}

impl SiblingServer {
    /// Whether it gets Weir's own credentials.
    pub(super) fn needs_own(&self) -> bool {
        self.is_tls() && self.certificate.is_none()
    }

    fn is_tls(&self) -> bool {
        self.url.starts_with("https://")
    }

    /// Reads the configuration; `own` are Weir's own credentials, if they are needed. Blocks.
    pub(super) fn load(&self, own: Option<LoadedConfig>) -> Result<LoadedConfig, UpstreamError> {
        let origin = format!("the sibling {}", self.url);
        let refuse =
            |problem: String| UpstreamError::Credentials(format!("cache.siblings: {problem}"));
        let url = self.url.parse().map_err(|_| refuse(format!("{:?} is no URL", self.url)))?;
        let mut loaded = LoadedConfig::new(Config::new(url), &origin);
        if !self.is_tls() {
            return Ok(loaded);
        }
        let Some(ca) = &self.ca else { return Err(refuse("caFile is missing".to_owned())) };
        let pem = std::fs::read(ca)
            .map_err(|error| refuse(format!("cannot read {}: {error}", ca.display())))?;
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let authorities = authorities
            .ok()
            .filter(|all| !all.is_empty())
            .ok_or_else(|| refuse(format!("{} has no certificates in PEM", ca.display())))?;
        loaded.config.root_cert = Some(authorities.iter().map(|it| it.to_vec()).collect());
        loaded.config.tls_server_name.clone_from(&self.server_name);
        loaded.authority_files = vec![ca.clone()];
        match (&self.certificate, own) {
            (Some(SiblingCertificate { certificate, key }), _) => {
                loaded.config.auth_info = AuthInfo {
                    client_certificate: Some(certificate.display().to_string()),
                    client_key: Some(key.display().to_string()),
                    ..AuthInfo::default()
                };
                loaded.certificate_files = vec![certificate.clone(), key.clone()];
            }
            (None, None) => {}
            (None, Some(own)) => {
                loaded.config.auth_info = own.config.auth_info;
                loaded.source_files = own.source_files;
                loaded.certificate_files = own.certificate_files;
                loaded.token_files = own.token_files;
            }
        }
        Ok(loaded)
    }
}
