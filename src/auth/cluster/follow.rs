//! What keeps the settings current: files by looking at them every few seconds, the config map every minute.
//!
//! It is polled, not watched, since it is Weir's own question, asked once a minute for the whole process, and a new CA is published long before
//! certificates of it are used. Until it has been had once, it is asked for again soon.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::config_map::{self, ConfigMap};
use super::files::CaFile;
use super::{Setting, Settings};
use crate::auth::authenticator::AuthError;
use crate::auth::authenticator::metrics::CaKind;
use crate::auth::request_header::{Names, RequestHeader};
use crate::auth::x509::Bundle;
use crate::config::AuthenticationConfig;
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch;

/// Follows where the settings come from.
pub(crate) struct Follower {
    settings: Arc<Settings>,
    client: Option<CaFile>,
    front_proxy: Option<(CaFile, Names)>,
    upstream: Upstream,
    /// What was last looked at, good or bad, so that a bad one is told of once.
    seen: Option<ConfigMap>,
    /// Whether it was told that the config map cannot be had.
    told: bool,
    failures: u32,
}

impl Follower {
    /// Reads the files; the config map is asked for later.
    pub(crate) fn new(
        config: &AuthenticationConfig,
        settings: Arc<Settings>,
        upstream: Upstream,
    ) -> Result<Self, AuthError> {
        let open = |path: &std::path::Path| {
            CaFile::open(path).map_err(|error| AuthError::File {
                path: path.to_owned(),
                cause: error.to_string(),
            })
        };
        let mut client = None;
        if let Some(path) = &config.client_ca {
            let (file, bundle) = open(path)?;
            settings.set_client(Setting::Set(Arc::new(bundle)));
            client = Some(file);
        }
        let mut front_proxy = None;
        if let Some(rights) = &config.request_header {
            let (file, bundle) = open(&rights.ca)?;
            let names = Names::new(
                rights.allowed_names.clone(),
                &rights.username_headers,
                &rights.uid_headers,
                &rights.group_headers,
                &rights.extra_header_prefixes,
            );
            let new = RequestHeader { bundle, names: names.clone() };
            settings.set_front_proxy(Setting::Set(Arc::new(new)));
            front_proxy = Some((file, names));
        }
        let (seen, told, failures) = (None, false, 0);
        Ok(Self { settings, client, front_proxy, upstream, seen, told, failures })
    }

    /// Follows until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let needs_map = self.client.is_none() || self.front_proxy.is_none();
        let mut files = tokio::time::interval(FILES_INTERVAL);
        files.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let next = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = files.tick() => self.poll_files(),
                () = next.as_mut(), if needs_map => {
                    // What is asked may take a minute to fail; the files can wait for it.
                    let Some(wait) = cancel.run_until_cancelled(self.poll_map()).await else { return };
                    next.as_mut().reset(tokio::time::Instant::now() + wait);
                }
            }
        }
    }

    /// Looks at the files once.
    pub(super) fn poll_files(&mut self) {
        if let Some(file) = &mut self.client
            && let Some(new) = file.poll()
        {
            match new {
                Ok(bundle) => {
                    self.settings.set_client(Setting::Set(Arc::new(bundle)));
                    tracing::info!(file = %file.path().display(), "took a new CA of clients");
                }
                Err(error) => {
                    self.settings.metrics().ca_failed(CaKind::Client);
                    tracing::warn!(file = %file.path().display(), %error, "keeping the CA of clients");
                }
            }
        }
        if let Some((file, names)) = &mut self.front_proxy
            && let Some(new) = file.poll()
        {
            match new {
                Ok(bundle) => {
                    let rights = RequestHeader { bundle, names: names.clone() };
                    self.settings.set_front_proxy(Setting::Set(Arc::new(rights)));
                    tracing::info!(file = %file.path().display(), "took a new CA of front proxies");
                }
                Err(error) => {
                    self.settings.metrics().ca_failed(CaKind::RequestHeader);
                    tracing::warn!(file = %file.path().display(), %error, "keeping the CA of front proxies");
                }
            }
        }
    }

    /// Asks for the config map once; tells how long to wait until the next time.
    pub(super) async fn poll_map(&mut self) -> Duration {
        match self.ask().await {
            Ok(map) => {
                self.failures = 0;
                if std::mem::take(&mut self.told) {
                    tracing::info!("the cluster's settings for authentication can be read again");
                }
                self.take(map);
                jittered(MAP_INTERVAL)
            }
            Err(error) => {
                self.map_failed(&error);
                self.failures = self.failures.saturating_add(1);
                retry_after(self.failures)
            }
        }
    }

    async fn ask(&self) -> Result<ConfigMap, UpstreamError> {
        let get = fetch::get(
            &self.upstream,
            config_map::PATH,
            "application/json",
            None,
            config_map::BYTES_MAX,
        );
        let answer = get.await?;
        ConfigMap::read(answer.body()).map_err(|error| UpstreamError::Malformed(error.to_string()))
    }

    fn map_failed(&mut self, error: &UpstreamError) {
        let metrics = self.settings.metrics();
        if self.client.is_none() {
            metrics.ca_failed(CaKind::Client);
        }
        if self.front_proxy.is_none() {
            metrics.ca_failed(CaKind::RequestHeader);
        }
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                %error,
                "cannot read the config map kube-system/extension-apiserver-authentication; what was read before is kept, and \
                 without any nobody with a client certificate is known (role extension-apiserver-authentication-reader)"
            );
        }
    }

    fn take(&mut self, map: ConfigMap) {
        let old = self.seen.as_ref();
        if self.client.is_none() && old.map(ConfigMap::client_text) != Some(map.client_text()) {
            match map.client() {
                Ok(bundle) => {
                    self.settings.set_client(setting::<Bundle>(bundle));
                    tracing::info!("took the cluster's CA of clients");
                }
                Err(error) => {
                    self.settings.metrics().ca_failed(CaKind::Client);
                    tracing::warn!(%error, "keeping the CA of clients: the cluster's is unusable");
                }
            }
        }
        if self.front_proxy.is_none()
            && old.map(ConfigMap::front_proxy_text) != Some(map.front_proxy_text())
        {
            match map.front_proxy() {
                Ok(rights) => {
                    self.settings.set_front_proxy(setting::<RequestHeader>(rights));
                    tracing::info!("took the cluster's rights of front proxies");
                }
                Err(error) => {
                    self.settings.metrics().ca_failed(CaKind::RequestHeader);
                    tracing::warn!(%error, "keeping the rights of front proxies: the cluster's are unusable");
                }
            }
        }
        self.seen = Some(map);
    }
}

fn setting<T>(found: Option<T>) -> Setting<T> {
    found.map_or(Setting::Unset, |found| Setting::Set(Arc::new(found)))
}

/// After so many failures in a row: doubling from a second to a minute.
fn retry_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
    jittered(RETRY_MIN.saturating_mul(1 << doublings).min(MAP_INTERVAL))
}

/// Up to a tenth longer, so that many Weirs that were started at once do not ask at once.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + fastrand::f64() / 10.0)
}

/// As for serving certificates.
const FILES_INTERVAL: Duration = Duration::from_secs(10);
/// Certificates of a new CA are used long after it was published.
const MAP_INTERVAL: Duration = Duration::from_secs(60);
/// The first wait after a failure: at Weir's start everybody with a certificate waits for it.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// Past a minute, so that the shift cannot overflow.
const DOUBLINGS_MAX: u32 = 6;
