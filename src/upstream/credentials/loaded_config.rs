//! A configuration that was read, with the files that it came from.

use std::path::PathBuf;

use kube_client::Config;
use kube_client::config::AuthInfo;

use crate::upstream::proxy::Proxy;

pub(super) type Paths = Vec<PathBuf>;

/// A configuration that was read from a source.
#[derive(Clone)]
pub(super) struct LoadedConfig {
    pub(super) config: Config,
    /// The kubeconfig's `proxy-url`.
    pub(super) proxy: Option<Proxy>,
    /// Files and context, for messages.
    pub(super) origin: String,
    pub(super) context: Option<String>,
    /// The kubeconfig files, which contain everything else by name or by value.
    pub(super) source_files: Paths,
    /// The upstream's certificate authority.
    pub(super) authority_files: Paths,
    /// A client certificate and its key.
    pub(super) certificate_files: Paths,
    pub(super) token_files: Paths,
}

impl LoadedConfig {
    /// Returns a configuration that comes from no file.
    pub(super) fn new(config: Config, origin: &str) -> Self {
        Self {
            config,
            proxy: None,
            origin: origin.to_owned(),
            context: None,
            source_files: Paths::new(),
            authority_files: Paths::new(),
            certificate_files: Paths::new(),
            token_files: Paths::new(),
        }
    }

    /// Returns the part that describes the cluster, without Weir's credentials and without files to
    /// read again.
    pub(super) fn cluster(&self) -> Self {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        let (proxy, context) = (self.proxy.clone(), self.context.clone());
        Self { proxy, context, ..Self::new(config, &self.origin) }
    }

    /// Returns whether both have the same address and proxy, and trust the same authority.
    pub(super) fn is_same_cluster(&self, other: &Self) -> bool {
        let [one, two] = [&self.config, &other.config];
        one.cluster_url == two.cluster_url
            && one.root_cert == two.root_cert
            && one.root_cert_file == two.root_cert_file
            && one.accept_invalid_certs == two.accept_invalid_certs
            && one.tls_server_name == two.tls_server_name
            && self.proxy == other.proxy
    }
}
