//! The credentials for another Weir, which authenticates them as those of any client.
//!
//! Weir's own token or certificate goes only over TLS, to a server whose certificate the configured
//! authority has signed for the configured name. Without TLS, on a loopback address, there are no
//! credentials. Settings of the kubeconfig that weaken its TLS have no effect here.

use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::AuthInfo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::loaded_config::LoadedConfig;
use crate::config::siblings::{SiblingCertificate, SiblingsConfig};
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
    /// Checks that the files which the settings name can be used now. Blocks.
    pub(crate) fn check_files(config: &SiblingsConfig) -> Result<(), UpstreamError> {
        if let Some(ca) = &config.ca {
            certificates(ca)?;
        }
        if let Some(SiblingCertificate { certificate, key }) = &config.certificate {
            certificates(certificate)?;
            if PrivateKeyDer::from_pem_slice(&read(key)?).is_err() {
                return Err(refuse(&format!("{} has no private key in PEM", key.display())));
            }
        }
        Ok(())
    }

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
        let url = self.url.parse().map_err(|_| refuse(&format!("{:?} is no URL", self.url)))?;
        let mut loaded = LoadedConfig::new(Config::new(url), &origin);
        if !self.is_tls() {
            return Ok(loaded);
        }
        let Some(ca) = &self.ca else { return Err(refuse("caFile is missing")) };
        let authorities = certificates(ca)?;
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

/// Reads the certificates of a file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, UpstreamError> {
    let pem = read(file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.ok().filter(|all| !all.is_empty());
    certificates.ok_or_else(|| refuse(&format!("{} has no certificates in PEM", file.display())))
}

fn read(file: &Path) -> Result<Vec<u8>, UpstreamError> {
    let content = std::fs::read(file);
    content.map_err(|error| refuse(&format!("cannot read {}: {error}", file.display())))
}

fn refuse(problem: &str) -> UpstreamError {
    UpstreamError::Credentials(format!("cache.siblings: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let made = rcgen::generate_simple_self_signed(vec!["weir".to_owned()]).unwrap();
        let right = file("tls.crt", &made.cert.pem());
        let key = file("tls.key", &made.signing_key.serialize_pem());
        let wrong = file("empty.crt", "");
        let config = |ca: &PathBuf, certificate: &PathBuf, key: &PathBuf| SiblingsConfig {
            ca: Some(ca.clone()),
            certificate: Some(SiblingCertificate {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            ..SiblingsConfig::default()
        };
        assert!(SiblingServer::check_files(&SiblingsConfig::default()).is_ok());
        assert!(SiblingServer::check_files(&config(&right, &right, &key)).is_ok());
        let missing = dir.path().join("ca.crt");
        for (config, name) in [
            (config(&missing, &right, &key), "ca.crt"),
            (config(&wrong, &right, &key), "empty.crt"),
            (config(&right, &missing, &key), "ca.crt"),
            (config(&right, &right, &wrong), "empty.crt"),
            (config(&right, &right, &missing), "ca.crt"),
        ] {
            let error = SiblingServer::check_files(&config).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("cache.siblings"), "{error}");
        }
    }
}
