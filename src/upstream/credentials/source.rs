//! Where credentials come from, and whether it changed.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;

use kube_client::Config;
use kube_client::config::{AuthInfo, KubeConfigOptions, Kubeconfig};

use super::authorizer::never_interactive;
use super::{Paths, errors};
use crate::config::UpstreamConfig;
use crate::upstream::error::UpstreamError;

/// Where a pod finds its token and CA.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// One of the places.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Kubeconfig files, merged as kubectl does. The context is pinned once it was read, so that
    /// `kubectl config use-context` doesn't move a running Weir to another cluster.
    Kubeconfig { paths: Paths, context: Option<String> },
    /// The pod's service account.
    InCluster,
    /// A plain-HTTP address and no kubeconfig: no credentials at all. What a kubeconfig that happens to lie around holds must
    /// not be sent to it unencrypted.
    Anonymous { address: String },
}

/// What was read.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) config: Config,
    /// For messages: files and context.
    pub(super) origin: String,
    pub(super) context: Option<String>,
    /// The kubeconfig, which holds the rest by name or by value.
    pub(super) source_files: Paths,
    /// The upstream's authority.
    pub(super) authority_files: Paths,
    /// A client certificate and its key.
    pub(super) certificate_files: Paths,
    pub(super) token_files: Paths,
}

impl Loaded {
    /// What of it is the upstream's own: nothing of Weir's identity, and no file to be read again.
    pub(super) fn cluster(&self) -> Self {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        Self {
            config,
            origin: self.origin.clone(),
            context: self.context.clone(),
            source_files: Paths::new(),
            authority_files: Paths::new(),
            certificate_files: Paths::new(),
            token_files: Paths::new(),
        }
    }

    /// Whether connections lead to the same place, trusted by the same authority.
    pub(super) fn is_same_cluster(&self, other: &Self) -> bool {
        let [one, two] = [&self.config, &other.config];
        one.cluster_url == two.cluster_url
            && one.root_cert == two.root_cert
            && one.root_cert_file == two.root_cert_file
            && one.accept_invalid_certs == two.accept_invalid_certs
            && one.tls_server_name == two.tls_server_name
    }
}

impl Source {
    /// Decides by configuration and environment; the first place that exists counts, and errors in it are errors.
    pub(super) fn choose(config: &UpstreamConfig) -> Result<Self, UpstreamError> {
        let context = config.context.clone();
        if let Some(path) = &config.kubeconfig {
            return Ok(Self::Kubeconfig { paths: vec![path.clone()], context });
        }
        if let Some(address) = config.addresses.first()
            && address.starts_with("http://")
        {
            return Ok(Self::Anonymous { address: address.clone() });
        }
        if let Some(paths) = std::env::var_os("KUBECONFIG") {
            let paths: Paths =
                std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect();
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
            "there is no kubeconfig (--kubeconfig, $KUBECONFIG, ~/.kube/config), and this is not a pod"
                .to_owned(),
        ))
    }

    /// Reads it, with digests that are not younger than what was read: a file that changes meanwhile is seen as changed by the
    /// next comparison. Blocks.
    pub(super) fn load_with_digest(&self) -> Result<(Loaded, FilesDigest), UpstreamError> {
        let digests = FilesDigest::of(&self.load()?);
        Ok((self.load()?, digests))
    }

    fn load(&self) -> Result<Loaded, UpstreamError> {
        match self {
            Self::Kubeconfig { paths, context } => self.load_kubeconfig(paths, context.as_deref()),
            Self::InCluster => load_in_cluster(),
            Self::Anonymous { address } => {
                let url = address.parse().map_err(|_| {
                    UpstreamError::Credentials(format!("the address {address:?} is not a URL"))
                })?;
                Ok(Loaded {
                    config: Config::new(url),
                    origin: "the configured address".to_owned(),
                    context: None,
                    source_files: Vec::new(),
                    authority_files: Vec::new(),
                    certificate_files: Vec::new(),
                    token_files: Vec::new(),
                })
            }
        }
    }

    /// Keeps to the context that was read first.
    pub(super) fn pin(&mut self, loaded: &Loaded) {
        if let Self::Kubeconfig { context, .. } = self {
            context.clone_from(&loaded.context);
        }
    }

    fn load_kubeconfig(
        &self,
        paths: &[PathBuf],
        context: Option<&str>,
    ) -> Result<Loaded, UpstreamError> {
        let refuse = |text: String| UpstreamError::Credentials(format!("{self}: {text}"));
        let kubeconfig = paths
            .iter()
            .try_fold(Kubeconfig::default(), |merged, path| {
                merged.merge(Kubeconfig::read_from(path)?)
            })
            .map_err(|error| refuse(errors::kubeconfig_text(&error)))?;
        let name = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone());
        let cluster_name = name.as_ref().and_then(|name| {
            let named = kubeconfig.contexts.iter().find(|context| context.name == *name)?;
            Some(named.context.as_ref()?.cluster.clone())
        });
        let cluster = cluster_name.and_then(|name| {
            kubeconfig.clusters.iter().find(|cluster| cluster.name == name)?.cluster.clone()
        });
        if let Some(proxy) = cluster.as_ref().and_then(|cluster| cluster.proxy_url.as_ref())
            && !proxy.is_empty()
        {
            return Err(refuse(
                "proxy-url is not supported; give Weir a direct address".to_owned(),
            ));
        }
        let options = KubeConfigOptions { context: name.clone(), ..Default::default() };
        // The future does no I/O of its own and never waits; it is only declared async.
        let mut config = futures_util::FutureExt::now_or_never(Config::from_custom_kubeconfig(
            kubeconfig, &options,
        ))
        .ok_or_else(|| refuse("reading it would wait".to_owned()))?
        .map_err(|error| refuse(errors::kubeconfig_text(&error)))?;
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
        Ok(Loaded {
            config,
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

fn load_in_cluster() -> Result<Loaded, UpstreamError> {
    let mut config = Config::incluster_env().map_err(|error| {
        UpstreamError::Credentials(format!(
            "the pod's service account cannot be used ({error}); look at automountServiceAccountToken"
        ))
    })?;
    let file = |name: &str| PathBuf::from(format!("{SERVICE_ACCOUNT}/{name}"));
    // kube-client would read the file again within a TLS handshake, on a worker; the poll does it for us.
    let ca = config.root_cert_file.take().unwrap_or_else(|| file("ca.crt"));
    let token = config.auth_info.token_file.as_ref().map(PathBuf::from);
    Ok(Loaded {
        config,
        origin: "the pod's service account".to_owned(),
        context: None,
        source_files: Vec::new(),
        authority_files: vec![ca],
        certificate_files: Vec::new(),
        token_files: vec![token.unwrap_or_else(|| file("token"))],
    })
}

/// The content of every file that matters, hashed; never the content itself.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FilesDigest {
    /// Of the files that TLS is made of, and of the kubeconfig as a whole.
    pub(super) tls: Vec<(PathBuf, u64)>,
    /// Of the token files.
    pub(super) tokens: Vec<(PathBuf, u64)>,
}

impl FilesDigest {
    /// Hashes the files of what was read. Blocks.
    pub(super) fn of(loaded: &Loaded) -> Self {
        let tls = [&loaded.source_files, &loaded.authority_files, &loaded.certificate_files];
        let tls = tls.into_iter().flatten().cloned().collect();
        Self::of_paths((tls, loaded.token_files.clone()))
    }

    /// Hashes files. Blocks.
    pub(super) fn of_paths((tls, tokens): (Paths, Paths)) -> Self {
        let hash = |path: PathBuf| {
            let hash = hash_file(&path);
            (path, hash)
        };
        Self {
            tls: tls.into_iter().map(hash).collect(),
            tokens: tokens.into_iter().map(hash).collect(),
        }
    }

    /// The same files, to be hashed anew.
    pub(super) fn paths(&self) -> (Paths, Paths) {
        let paths = |files: &[(PathBuf, u64)]| files.iter().map(|(path, _)| path.clone()).collect();
        (paths(&self.tls), paths(&self.tokens))
    }
}

/// A file that can't be read hashes to its own value, so that its coming back is a change.
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
