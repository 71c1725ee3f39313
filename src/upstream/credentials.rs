//! Weir's own identity: from a kubeconfig, `$KUBECONFIG` or the pod it runs in, with everything that rotates
//! (token files, exec plugins, certificate authorities).
//!
//! Connections are our own, so what is kept here is what they need: an [`Identity`] of address, TLS configuration and
//! headers. A task compares the *content* of every file behind it (a mounted Secret changes by a symlink swap
//! that file watches miss) and puts a new one in place; requests take the current one as they start, and a changed
//! [`Identity::tls_generation`] tells the pools to let old connections drain.
//!
//! Connections that carry a client's credential ([`Shown`]) are made of the same address and authority without Weir's own: not read once more, but
//! taken from the identity in use, so that no change of a kubeconfig could ever lead them to another cluster than the one that is cached.
//!
//! No credential is ever in an error or a log: what kube-client says of an exec plugin would hold its environment and its output.

mod authorizer;
mod endpoint;
mod errors;
mod shown;
mod source;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use kube_client::Config;
use kube_client::client::ConfigExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::authorizer::Authorizer;
pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::shown::Shown;
use self::source::{FilesDigest, Loaded, Source};
use crate::config::UpstreamConfig;
use crate::upstream::error::UpstreamError;

/// How often the files are compared. A kubelet refreshes mounted tokens and ConfigMaps about once a minute, long before they
/// expire, so this adds little to it.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// An exec plugin that gave a certificate is asked again so often, since kube-client keeps its expiry to itself.
/// Plugins cache, and certificates of less than twice this would be unusual.
const EXEC_CERTIFICATE_INTERVAL: Duration = Duration::from_secs(600);
/// A 401 asks an exec plugin again (as client-go does), but no oftener than this.
const UNAUTHORIZED_INTERVAL: Duration = Duration::from_secs(10);
/// A plugin that hangs must not hold requests for ever; interactive ones are refused anyway.
const EXEC_TIMEOUT: Duration = Duration::from_secs(60);

/// What a connection and a request need, as of one moment.
pub(crate) struct Identity {
    /// Where the upstream is.
    pub(crate) endpoint: Endpoint,
    /// TLS for connections that may speak HTTP/2 (by ALPN); `None` for plain HTTP.
    pub(crate) tls_http2: Option<Arc<rustls::ClientConfig>>,
    /// TLS for connections that must speak HTTP/1.1.
    pub(crate) tls_http1: Option<Arc<rustls::ClientConfig>>,
    /// Counts up when certificates or authorities changed.
    pub(crate) tls_generation: u64,
    /// Impersonation that the kubeconfig asks for; empty for none.
    pub(crate) impersonation: HeaderMap,
    /// The `Authorization` of each request.
    pub(crate) authorizer: Authorizer,
    /// The namespace of the context, or of the pod.
    pub(crate) default_namespace: String,
    /// What of it is the upstream's own.
    cluster: Arc<Loaded>,
}

/// The current identity and where it comes from.
pub(crate) struct Credentials {
    source: Source,
    /// Whose upstream this is, if it is not of the source itself.
    own: Option<Arc<Self>>,
    shown: Shown,
    address: Option<String>,
    current: ArcSwap<Identity>,
    digests: Mutex<FilesDigest>,
    reload: Notify,
    /// Tells those beside it that a new identity is in place.
    changed: Notify,
    last_unauthorized: Mutex<Option<Instant>>,
}

impl Credentials {
    /// Weir's own: reads everything once.
    pub(crate) async fn load(config: &UpstreamConfig) -> Result<Arc<Self>, UpstreamError> {
        // Which provider rustls uses must not depend on which features other crates happen to turn on; an
        // error means that somebody chose one already.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let source = Source::choose(config)?;
        let address = config.addresses.first().cloned();
        let (identity, digests, source) = {
            let address = address.clone();
            blocking(move || {
                let mut source = source;
                let (loaded, digests) = source.load_with_digest()?;
                source.pin(&loaded);
                Ok((build(&loaded, address.as_deref(), 0)?, digests, source))
            })
            .await?
        };
        // Tells of an unusable plugin or token now rather than with the first request.
        identity.authorizer.header().await?;
        Ok(Self::new(source, None, Shown::Own, address, identity, digests))
    }

    /// For the same upstream as Weir's own, which it follows; but only this is shown.
    pub(crate) async fn beside(own: &Arc<Self>, shown: Shown) -> Result<Arc<Self>, UpstreamError> {
        let loaded = shown.beside(&own.current().cluster);
        let (address, checked) = (own.address.clone(), shown.clone());
        let (identity, digests) = blocking(move || {
            let digests = FilesDigest::of(&loaded);
            let identity = build(&loaded, address.as_deref(), 0)?;
            checked.check(&identity.endpoint)?;
            Ok((identity, digests))
        })
        .await?;
        let (source, address) = (own.source.clone(), own.address.clone());
        Ok(Self::new(source, Some(Arc::clone(own)), shown, address, identity, digests))
    }

    fn new(
        source: Source,
        own: Option<Arc<Self>>,
        shown: Shown,
        address: Option<String>,
        identity: Identity,
        digests: FilesDigest,
    ) -> Arc<Self> {
        Arc::new(Self {
            source,
            own,
            shown,
            address,
            current: ArcSwap::from_pointee(identity),
            digests: Mutex::new(digests),
            reload: Notify::new(),
            changed: Notify::new(),
            last_unauthorized: Mutex::new(None),
        })
    }

    /// What connections with it show.
    pub(crate) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// The identity as of now.
    pub(crate) fn current(&self) -> Arc<Identity> {
        self.current.load_full()
    }

    /// The upstream answered 401. If that was to Weir's own credential, an exec plugin is asked again, and token files are read, soon;
    /// what a client sent in its own name says nothing of Weir's.
    pub(crate) fn unauthorized(&self) {
        if self.shown != Shown::Own {
            return;
        }
        let mut last = self.last_unauthorized.lock();
        let now = Instant::now();
        if last.is_none_or(|then| now.duration_since(then) >= UNAUTHORIZED_INTERVAL) {
            *last = Some(now);
            self.reload.notify_one();
        }
    }

    /// Follows the files until cancelled.
    pub(crate) async fn follow(self: Arc<Self>, cancel: CancellationToken) {
        let mut warned = false;
        let mut loaded_at = Instant::now();
        loop {
            let forced = tokio::select! {
                () = cancel.cancelled() => return,
                () = self.reload.notified() => self.current().authorizer.is_exec(),
                () = self.own_changed() => false,
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    self.current().authorizer.is_exec_certificate()
                        && loaded_at.elapsed() >= EXEC_CERTIFICATE_INTERVAL
                }
            };
            match self.refresh(forced).await {
                Ok(true) => {
                    loaded_at = Instant::now();
                    warned = false;
                    tracing::info!(source = %self.source, "credentials for the upstream were read again");
                }
                Ok(false) => warned = false,
                Err(error) if !warned => {
                    warned = true;
                    tracing::warn!(%error, "changed credentials cannot be used; the old ones are kept");
                }
                Err(_) => {}
            }
        }
    }

    /// When there is something new beside Weir's own identity; never for that itself. What is missed between two waits, the poll finds.
    async fn own_changed(&self) {
        match &self.own {
            Some(own) => own.changed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Reads everything again if a file changed (or `forced`); tells whether it did. On an error the old identity stays.
    pub(crate) async fn refresh(&self, forced: bool) -> Result<bool, UpstreamError> {
        let old_digests = self.digests.lock().clone();
        let paths = old_digests.paths();
        let now = blocking(move || Ok(FilesDigest::of_paths(paths))).await?;
        let old = self.current();
        // What Weir's own identity could not take is not taken here either.
        let cluster = self.own.as_ref().map(|own| own.current().cluster.clone());
        let moved = cluster.as_ref().is_some_and(|new| !new.is_same_cluster(&old.cluster));
        if now == old_digests && !moved && !forced {
            return Ok(false);
        }
        let source = self.source.clone();
        let (address, shown) = (self.address.clone(), self.shown.clone());
        let (identity, digests) = blocking(move || {
            let (loaded, digests) = match cluster {
                None => source.load_with_digest()?,
                Some(cluster) => {
                    let loaded = shown.beside(&cluster);
                    let digests = FilesDigest::of(&loaded);
                    (loaded, digests)
                }
            };
            let same_tls =
                digests.tls == old_digests.tls && !moved && !old.authorizer.is_exec_certificate();
            let generation = old.tls_generation + u64::from(!same_tls);
            let mut identity = build(&loaded, address.as_deref(), generation)?;
            if identity.endpoint != old.endpoint {
                return Err(UpstreamError::Credentials(format!(
                    "{source} now names another server; restart Weir if that is meant"
                )));
            }
            if same_tls {
                // The same configuration also keeps its TLS sessions for resumption.
                identity.tls_http2.clone_from(&old.tls_http2);
                identity.tls_http1.clone_from(&old.tls_http1);
            }
            Ok((identity, digests))
        })
        .await?;
        identity.authorizer.header().await?;
        self.current.store(Arc::new(identity));
        *self.digests.lock() = digests;
        self.changed.notify_waiters();
        Ok(true)
    }
}

/// Makes an identity of a configuration. Blocks: kube-client runs exec plugins in here.
fn build(
    loaded: &Loaded,
    address: Option<&str>,
    tls_generation: u64,
) -> Result<Identity, UpstreamError> {
    let config = &loaded.config;
    let server = config.cluster_url.to_string();
    let endpoint = Endpoint::parse(address.unwrap_or(&server), config.tls_server_name.as_deref())
        .map_err(|problem| {
        UpstreamError::Credentials(format!("{}: {problem}", loaded.origin))
    })?;
    let authorizer = Authorizer::new(config, &loaded.origin)?;
    let (tls_http2, tls_http1) = if endpoint.https {
        let tls = config
            .rustls_client_config()
            .map_err(|error| errors::credentials(&loaded.origin, &config.auth_info, &error))?;
        (Some(with_alpn(tls.clone(), &[b"h2", b"http/1.1"])), Some(with_alpn(tls, &[b"http/1.1"])))
    } else {
        (None, None)
    };
    Ok(Identity {
        endpoint,
        tls_http2,
        tls_http1,
        tls_generation,
        impersonation: impersonation(config, &loaded.origin)?,
        authorizer,
        default_namespace: config.default_namespace.clone(),
        cluster: Arc::new(loaded.cluster()),
    })
}

fn with_alpn(mut tls: rustls::ClientConfig, protocols: &[&[u8]]) -> Arc<rustls::ClientConfig> {
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(tls)
}

/// `as`, `as-uid`, `as-groups` and `as-user-extra` of the kubeconfig, as client-go sends them.
fn impersonation(config: &Config, origin: &str) -> Result<HeaderMap, UpstreamError> {
    let refuse = |what: &str| {
        UpstreamError::Credentials(format!("{origin}: {what} cannot be written as a header"))
    };
    let mut headers = HeaderMap::new();
    let mut append = |name: &str, value: &str| {
        let name = HeaderName::try_from(name).map_err(|_| refuse("as-user-extra"))?;
        let value = HeaderValue::try_from(value).map_err(|_| refuse(name.as_str()))?;
        headers.append(name, value);
        Ok::<(), UpstreamError>(())
    };
    let auth = &config.auth_info;
    if let Some(user) = auth.impersonate.as_deref().filter(|user| !user.is_empty()) {
        append("impersonate-user", user)?;
    }
    if let Some(uid) = auth.impersonate_uid.as_deref().filter(|uid| !uid.is_empty()) {
        append("impersonate-uid", uid)?;
    }
    for group in auth.impersonate_groups.iter().flatten() {
        append("impersonate-group", group)?;
    }
    for (key, values) in auth.impersonate_user_extra.iter().flatten() {
        let name = format!("impersonate-extra-{}", escape_extra_key(key));
        for value in values {
            append(&name, value)?;
        }
    }
    Ok(headers)
}

/// Percent-escapes what a header name may not hold, and `%` itself (client-go, `transport/round_trippers.go`).
pub(crate) fn escape_extra_key(key: &str) -> String {
    key.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            escaped.push(char::from(byte.to_ascii_lowercase()));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
        escaped
    })
}

/// The path of a file that was read, for digests.
type Paths = Vec<PathBuf>;

/// Runs what reads files or plugins off the workers.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UpstreamError> + Send + 'static,
) -> Result<T, UpstreamError> {
    match tokio::time::timeout(EXEC_TIMEOUT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(UpstreamError::Credentials("reading them failed".to_owned())),
        Err(_) => Err(UpstreamError::Credentials(format!(
            "the exec plugin or a file did not answer within {EXEC_TIMEOUT:?}"
        ))),
    }
}
