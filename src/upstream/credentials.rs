//! The credentials for the upstream: Weir's own from a kubeconfig, `$KUBECONFIG` or the pod, and
//! those of the other pools. All of them can rotate: token files, exec plugins, certificate
//! authorities.
//!
//! Weir opens its own connections. Therefore this module provides an [`Identity`] of address, TLS
//! configuration and headers, instead of a client. A task compares the *content* of every file that
//! an identity comes from (a mounted Secret changes by a symlink swap, which file watches miss) and
//! replaces the identity. Requests use the current identity when they start. A changed
//! [`Identity::tls_generation`] makes the pools drain older connections.
//!
//! Connections that carry a client's credential ([`PoolIdentity`]) have the same address and
//! authority, without Weir's own credentials. Their configuration is not read again, but derived
//! from the identity in use. A change of a kubeconfig can therefore never lead them to another
//! cluster than the one that is cached.
//!
//! No error or log contains a credential, nor the environment or the output of an exec plugin.

mod endpoint;
mod exec;
mod expiry;
mod identity;
mod loaded_config;
mod pool_identity;
mod source;
#[cfg(test)]
mod tests;
mod tls;
mod token_source;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::endpoint::Endpoint;
pub(crate) use self::expiry::{CertificateExpiries, first_expiry};
use self::identity::build;
pub(crate) use self::identity::{Identity, escape_extra_key};
pub(crate) use self::pool_identity::PoolIdentity;
use self::source::{FilesDigest, Source};
use crate::config::UpstreamConfig;
use crate::tasks::spawn_blocking;
use crate::upstream::error::UpstreamError;

/// The interval of comparing the files. A kubelet refreshes mounted tokens and ConfigMaps about
/// once a minute, long before they expire, so that this interval adds little delay.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How often an exec plugin that returned a certificate is run again, whatever expiry it states.
/// Plugins have caches, and a certificate that lives less than twice this interval would be
/// unusual.
const EXEC_CERTIFICATE_INTERVAL: Duration = Duration::from_secs(600);
/// The time-out of reading files and running a plugin, which has a shorter one of its own.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The least time between two reloads that follow a 401. Like client-go, Weir runs an exec plugin
/// again after a 401.
const UNAUTHORIZED_INTERVAL: Duration = Duration::from_secs(10);

/// The current identity and its source.
pub(crate) struct Credentials {
    source: Source,
    /// Weir's own credentials, if these are derived from them.
    base: Option<Arc<Self>>,
    pool_identity: PoolIdentity,
    current: ArcSwap<Identity>,
    digests: Mutex<FilesDigest>,
    reload: Notify,
    /// Notifies derived credentials of a new identity.
    changed: Notify,
    last_unauthorized: Mutex<Option<Instant>>,
}

impl Credentials {
    /// Loads Weir's own credentials: reads all files and runs the exec plugin, if any.
    pub(crate) async fn load(config: &UpstreamConfig) -> Result<Arc<Self>, UpstreamError> {
        // The provider must not depend on the features that other crates enable. An error means
        // that a provider was installed before.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let source = Source::from_environment(config)?;
        let (identity, digests, source) = run_blocking(move || {
            let mut source = source;
            let (loaded, digests) = source.load_with_digest()?;
            source.pin_context(&loaded);
            Ok((build(&loaded, 0)?, digests, source))
        })
        .await?;
        // Report an unusable plugin or token now instead of with the first request.
        identity.token_source.header().await?;
        Ok(Self::new(source, None, PoolIdentity::Own, identity, digests))
    }

    /// Derives credentials for the same upstream, with the identity of another pool. They follow
    /// `base`.
    pub(crate) async fn derive(
        base: &Arc<Self>,
        pool_identity: PoolIdentity,
    ) -> Result<Arc<Self>, UpstreamError> {
        let loaded = pool_identity.apply_to(&base.current().cluster);
        let checked = pool_identity.clone();
        let (identity, digests) = run_blocking(move || {
            let digests = FilesDigest::new(&loaded);
            let identity = build(&loaded, 0)?;
            checked.check(&identity.endpoint)?;
            Ok((identity, digests))
        })
        .await?;
        let source = base.source.clone();
        Ok(Self::new(source, Some(Arc::clone(base)), pool_identity, identity, digests))
    }

    fn new(
        source: Source,
        base: Option<Arc<Self>>,
        pool_identity: PoolIdentity,
        identity: Identity,
        digests: FilesDigest,
    ) -> Arc<Self> {
        Arc::new(Self {
            source,
            base,
            pool_identity,
            current: ArcSwap::from_pointee(identity),
            digests: Mutex::new(digests),
            reload: Notify::new(),
            changed: Notify::new(),
            last_unauthorized: Mutex::new(None),
        })
    }

    /// Returns the identity of the pool that uses these credentials.
    pub(crate) fn pool_identity(&self) -> &PoolIdentity {
        &self.pool_identity
    }

    pub(crate) fn current(&self) -> Arc<Identity> {
        self.current.load_full()
    }

    /// Handles a 401 of the upstream. If the request used Weir's own credential, the files are read
    /// and an exec plugin is run again soon. A 401 for a client's credential has no consequence
    /// here.
    pub(crate) fn unauthorized(&self) {
        if self.pool_identity != PoolIdentity::Own {
            return;
        }
        let mut last = self.last_unauthorized.lock();
        let now = Instant::now();
        if last.is_none_or(|then| now.duration_since(then) >= UNAUTHORIZED_INTERVAL) {
            *last = Some(now);
            self.reload.notify_one();
        }
    }

    /// Reloads the credentials when they change, until cancelled.
    pub(crate) async fn follow(self: Arc<Self>, cancel: CancellationToken) {
        let mut warned = false;
        let mut loaded_at = Instant::now();
        loop {
            let forced = tokio::select! {
                () = cancel.cancelled() => return,
                () = self.reload.notified() => self.current().token_source.is_exec(),
                () = self.wait_for_base_change() => false,
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    self.current().token_source.is_exec_certificate()
                        && loaded_at.elapsed() >= EXEC_CERTIFICATE_INTERVAL
                }
            };
            match self.refresh(forced).await {
                Ok(true) => {
                    loaded_at = Instant::now();
                    warned = false;
                    tracing::info!(source = %self.source, "reloaded the credentials for the upstream");
                }
                Ok(false) => warned = false,
                Err(error) if !warned => {
                    warned = true;
                    tracing::warn!(%error, "cannot use the changed credentials; keeping the previous ones");
                }
                Err(_) => {}
            }
        }
    }

    /// Waits for a new identity of the base credentials; for ever if there are none. A change
    /// between two waits is found by the next poll.
    async fn wait_for_base_change(&self) {
        match &self.base {
            Some(base) => base.changed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Reloads the credentials if a file changed, or if `forced`. Returns whether it did. On an
    /// error the current identity stays in use.
    pub(crate) async fn refresh(&self, forced: bool) -> Result<bool, UpstreamError> {
        let old_digests = self.digests.lock().clone();
        let paths = old_digests.paths();
        let new_digests = run_blocking(move || Ok(FilesDigest::from_paths(paths))).await?;
        let old = self.current();
        // A change that the base credentials rejected does not take effect here, either.
        let cluster = self.base.as_ref().map(|base| base.current().cluster.clone());
        let moved = cluster.as_ref().is_some_and(|new| !new.is_same_cluster(&old.cluster));
        if new_digests == old_digests && !moved && !forced {
            return Ok(false);
        }
        let source = self.source.clone();
        let pool_identity = self.pool_identity.clone();
        let (identity, digests) = run_blocking(move || {
            let (loaded, digests) = match cluster {
                None => source.load_with_digest()?,
                Some(cluster) => {
                    let loaded = pool_identity.apply_to(&cluster);
                    let digests = FilesDigest::new(&loaded);
                    (loaded, digests)
                }
            };
            let same_tls =
                digests.tls == old_digests.tls && !moved && !old.token_source.is_exec_certificate();
            let generation = old.tls_generation + u64::from(!same_tls);
            let mut identity = build(&loaded, generation)?;
            if identity.endpoint != old.endpoint {
                return Err(UpstreamError::Credentials(format!(
                    "{source} now names another server; restart Weir if this is intended"
                )));
            }
            if same_tls {
                // Reuse the configuration, which also keeps the TLS sessions for resumption.
                identity.tls_http2.clone_from(&old.tls_http2);
                identity.tls_http1.clone_from(&old.tls_http1);
            }
            Ok((identity, digests))
        })
        .await?;
        identity.token_source.header().await?;
        self.current.store(Arc::new(identity));
        *self.digests.lock() = digests;
        self.changed.notify_waiters();
        Ok(true)
    }
}

/// Runs work that reads files or runs plugins on a blocking thread, for at most [`LOAD_TIMEOUT`].
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UpstreamError> + Send + 'static,
) -> Result<T, UpstreamError> {
    match tokio::time::timeout(LOAD_TIMEOUT, spawn_blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(UpstreamError::Credentials("the task that reads them failed".to_owned())),
        Err(_) => Err(UpstreamError::Credentials(format!(
            "an exec plugin or a file did not respond within {LOAD_TIMEOUT:?}"
        ))),
    }
}
