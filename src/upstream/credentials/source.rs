//! The sources of the credentials, and digests that detect their changes.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};

use super::loaded_config::{LoadedConfig, Paths};
use super::token_source::never_interactive;
use crate::config::UpstreamConfig;
use crate::upstream::error::UpstreamError;
use crate::upstream::proxy::Proxy;

/// The directory of a pod's token and CA.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The source of Weir's own credentials.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Kubeconfig files, merged as kubectl does. The context is pinned after the first read, so
    /// that `kubectl config use-context` does not move a running Weir to another cluster.
    Kubeconfig { paths: Paths, context: Option<String> },
    /// The pod's service account.
    InCluster,
    /// A plain-HTTP address and no kubeconfig: no credentials. Those of a kubeconfig in the default
    /// location must not be sent unencrypted.
    Anonymous { address: String },
}

impl Source {
    /// Returns the first source that exists, by configuration and environment. Later sources are
    /// not tried if it is unusable.
    pub(super) fn from_environment(config: &UpstreamConfig) -> Result<Self, UpstreamError> {
        let context = config.context.clone();
        if let Some(path) = &config.kubeconfig {
            return Ok(Self::Kubeconfig { paths: vec![path.clone()], context });
        }
        if let Some(address) = config.endpoints.static_urls.first()
            && address.starts_with("http://")
        {
            return Ok(Self::Anonymous { address: address.clone() });
        }
        if let Some(paths) = std::env::var_os("KUBECONFIG") {
            let mut paths: Vec<_> =
                std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect();
            // Of several, those that are missing at the start do not count, as with kubectl.
            if paths.iter().any(|path| path.exists()) {
                paths.retain(|path| path.exists());
            }
            if !paths.is_empty() {
                return Ok(Self::Kubeconfig { paths, context });
            }
        }
        let home = std::env::home_dir().map(|home| home.join(".kube").join("config"));
        if let Some(path) = home.filter(|path| path.exists()) {
            return Ok(Self::Kubeconfig { paths: vec![path], context });
        }
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            return Ok(Self::InCluster);
        }
        Err(UpstreamError::Credentials(
            "found no kubeconfig (--kubeconfig, $KUBECONFIG, ~/.kube/config), and Weir does not run in a pod"
                .to_owned(),
        ))
    }

    /// Reads the configuration, and digests that are not newer: a file that changes meanwhile
    /// differs at the next comparison. Blocks.
    pub(super) fn load_with_digest(&self) -> Result<(LoadedConfig, FilesDigest), UpstreamError> {
        let digests = FilesDigest::new(&self.load()?);
        Ok((self.load()?, digests))
    }

    fn load(&self) -> Result<LoadedConfig, UpstreamError> {
        match self {
            Self::Kubeconfig { paths, context } => self.load_kubeconfig(paths, context.as_deref()),
            Self::InCluster => load_in_cluster(),
            Self::Anonymous { address } => {
                let url = address.parse().map_err(|_| {
                    UpstreamError::Credentials(format!("the address {address:?} is not a URL"))
                })?;
                Ok(LoadedConfig::new(Config::new(url), "the configured address"))
            }
        }
    }

    /// Pins the context that was read first.
    pub(super) fn pin_context(&mut self, loaded: &LoadedConfig) {
        if let Self::Kubeconfig { context, .. } = self {
            context.clone_from(&loaded.context);
        }
    }

    fn load_kubeconfig(
        &self,
        paths: &[PathBuf],
        context: Option<&str>,
    ) -> Result<LoadedConfig, UpstreamError> {
        let refuse = |text: String| UpstreamError::Credentials(format!("{self}: {text}"));
        let kubeconfig = merge(paths).map_err(|error| refuse(kubeconfig_text(&error)))?;
        let name = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone());
        let cluster_name = name.as_ref().and_then(|name| {
            let named = kubeconfig.contexts.iter().find(|context| context.name == *name)?;
            Some(named.context.as_ref()?.cluster.clone())
        });
        let cluster = cluster_name.and_then(|name| {
            kubeconfig.clusters.iter().find(|cluster| cluster.name == name)?.cluster.clone()
        });
        let proxy_url = cluster.as_ref().and_then(|cluster| cluster.proxy_url.as_deref());
        let proxy = proxy_url.filter(|url| !url.is_empty()).map(Proxy::parse).transpose();
        let proxy = proxy.map_err(|problem| refuse(format!("proxy-url {problem}")))?;
        let options = KubeConfigOptions { context: name.clone(), ..Default::default() };
        // The function is declared async, but does no asynchronous I/O and never waits.
        let mut config = futures_util::FutureExt::now_or_never(Config::from_custom_kubeconfig(
            kubeconfig, &options,
        ))
        .ok_or_else(|| refuse("reading it did not complete at once".to_owned()))?
        .map_err(|error| refuse(kubeconfig_text(&error)))?;
        never_interactive(&mut config.auth_info);
        let auth = &config.auth_info;
        let ca = cluster.and_then(|cluster| cluster.certificate_authority);
        let authority_files = ca.into_iter().map(PathBuf::from).collect();
        let certificate_files =
            auth.client_certificate.iter().chain(&auth.client_key).map(PathBuf::from).collect();
        let token_files = auth.token_file.iter().map(PathBuf::from).collect();
        let origin = match &name {
            Some(name) => format!("{self}, context {name:?}"),
            None => self.to_string(),
        };
        Ok(LoadedConfig {
            config,
            proxy,
            origin,
            context: name,
            source_files: paths.to_vec(),
            authority_files,
            certificate_files,
            token_files,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { paths, .. } => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                write!(f, "kubeconfig {}", paths.join(", "))
            }
            Self::InCluster => write!(f, "the pod's service account"),
            Self::Anonymous { address } => write!(f, "{address}"),
        }
    }
}

fn load_in_cluster() -> Result<LoadedConfig, UpstreamError> {
    let mut config = Config::incluster_env().map_err(|error| {
        UpstreamError::Credentials(format!(
            "cannot use the pod's service account ({error}); check automountServiceAccountToken"
        ))
    })?;
    let file = |name: &str| PathBuf::from(format!("{SERVICE_ACCOUNT}/{name}"));
    // kube-client would read the file again during a TLS handshake, on a runtime worker. The poll
    // of this module reads it instead.
    let ca = config.root_cert_file.take().unwrap_or_else(|| file("ca.crt"));
    let token = config.auth_info.token_file.as_ref().map(PathBuf::from);
    Ok(LoadedConfig {
        config,
        proxy: None,
        origin: "the pod's service account".to_owned(),
        context: None,
        source_files: Vec::new(),
        authority_files: vec![ca],
        certificate_files: Vec::new(),
        token_files: vec![token.unwrap_or_else(|| file("token"))],
    })
}

/// Hashes of the content of all relevant files, without the content.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FilesDigest {
    /// The certificate files, authority files and kubeconfigs.
    pub(super) tls: Vec<(PathBuf, u64)>,
    /// The token files.
    pub(super) tokens: Vec<(PathBuf, u64)>,
}

impl FilesDigest {
    /// Hashes the files of a configuration. Blocks.
    pub(super) fn new(loaded: &LoadedConfig) -> Self {
        let tls = [&loaded.source_files, &loaded.authority_files, &loaded.certificate_files];
        let tls = tls.into_iter().flatten().cloned().collect();
        Self::from_paths((tls, loaded.token_files.clone()))
    }

    /// Hashes files. Blocks.
    pub(super) fn from_paths((tls, tokens): (Paths, Paths)) -> Self {
        let hash = |path: PathBuf| {
            let hash = hash_file(&path);
            (path, hash)
        };
        Self {
            tls: tls.into_iter().map(hash).collect(),
            tokens: tokens.into_iter().map(hash).collect(),
        }
    }

    /// Returns the paths, for a new digest of the same files.
    pub(super) fn paths(&self) -> (Paths, Paths) {
        let paths = |files: &[(PathBuf, u64)]| files.iter().map(|(path, _)| path.clone()).collect();
        (paths(&self.tls), paths(&self.tokens))
    }
}

/// Hashes a file. A file that cannot be read has a hash of its own, so that its return is a change.
fn hash_file(path: &PathBuf) -> u64 {
    let mut hasher = DefaultHasher::new();
    match std::fs::read(path) {
        Ok(content) => {
            hasher.write_u8(1);
            hasher.write(&content);
        }
        Err(_) => hasher.write_u8(0),
    }
    hasher.finish()
}

/// Merges files as kubectl does: an empty `current-context` hides none.
fn merge(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    paths.iter().try_fold(Kubeconfig::default(), |merged, path| {
        let mut file = Kubeconfig::read_from(path)?;
        file.current_context = file.current_context.filter(|name| !name.is_empty());
        merged.merge(file)
    })
}

/// Returns the message of an error of a kubeconfig. kube-client's own messages may contain lines of
/// the kubeconfig.
fn kubeconfig_text(failure: &KubeconfigError) -> String {
    match failure {
        KubeconfigError::CurrentContextNotSet => {
            "it has no current-context, and --context is not given".to_owned()
        }
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::ReadConfig(failure, path) => format!("{}: {failure}", path.display()),
        KubeconfigError::Parse(failure) => match failure.location() {
            // The library's own message quotes the surrounding lines, which may contain a token.
            Some(at) => {
                format!("it is not a valid kubeconfig: line {}, column {}", at.line(), at.column())
            }
            None => "it is not a valid kubeconfig".to_owned(),
        },
        KubeconfigError::MissingClusterUrl => "the cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(_) => "the cluster's server is not a URL".to_owned(),
        KubeconfigError::ParseProxyUrl(_) => "a proxy's URL cannot be parsed".to_owned(),
        KubeconfigError::LoadCertificateAuthority(failure) => {
            format!("certificate-authority: {}", data_text(failure))
        }
        KubeconfigError::LoadClientCertificate(failure) => {
            format!("client-certificate: {}", data_text(failure))
        }
        KubeconfigError::LoadClientKey(failure) => format!("client-key: {}", data_text(failure)),
        KubeconfigError::ParseCertificates(_) => "certificate-authority is not PEM".to_owned(),
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            "its files cannot be merged: kind or apiVersion differ".to_owned()
        }
        KubeconfigError::FindPath => "found no home directory".to_owned(),
    }
}

fn data_text(failure: &LoadDataError) -> String {
    match failure {
        LoadDataError::DecodeBase64(_) => "its data is not base64".to_owned(),
        LoadDataError::ReadFile(failure, path) => format!("{}: {failure}", path.display()),
        LoadDataError::NoBase64DataOrFile => "it is missing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_context_hides_none() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two, gone] = ["one", "two", "gone"].map(|name| directory.path().join(name));
        std::fs::write(&one, "{kind: Config, current-context: ''}").unwrap();
        std::fs::write(&two, "{kind: Config, current-context: c}").unwrap();
        let merged = merge(&[one.clone(), two]).unwrap();
        assert_eq!(merged.current_context.as_deref(), Some("c"));
        assert!(merge(&[one, gone]).is_err(), "it was there at the start");
    }
}
