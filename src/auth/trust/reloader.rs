//! Keeps the settings current: reads the files every few seconds and the config map every minute.
//!
//! The config map is polled, not watched: it is one request a minute for the whole process, and a
//! new CA is published long before its certificates are used. Until the config map was read once,
//! it is polled more often.
//!
//! Where a file has the rules for front proxies, the config map still has the names of the headers
//! that the API server reads. While they are unknown, the requests of users of certificates are not
//! forwarded, since they could carry such a header. If the API server refuses to show the config
//! map for [`REFUSAL_LASTS`], the file's names alone are removed: then its author vouches for them.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ca_file::CaFile;
use super::config_map::{self, ConfigMap};
use super::setting::Setting;
use super::store::TrustStore;
use crate::auth::authenticator::error::AuthSetupError;
use crate::auth::authenticator::metrics::CaKind;
use crate::auth::request_header::{RequestHeaderNames, RequestHeaderRules};
use crate::config::{AuthenticationConfig, FRONT_PROXY_HEADERS};
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch;

/// Reads the settings from their sources into a [`TrustStore`].
pub(crate) struct Reloader {
    store: Arc<TrustStore>,
    client_ca: Option<CaFile>,
    front_proxy: Option<(CaFile, RequestHeaderNames)>,
    upstream: Upstream,
    /// The config map as last read, valid or not, so that each content is reported once.
    last_map: Option<ConfigMap>,
    /// Whether the last attempt to read the config map failed, which is logged once.
    is_failing: bool,
    failures: u32,
    /// The first refusal to read the config map, if it was never read and each attempt was refused.
    refused_since: Option<Instant>,
}

impl Reloader {
    /// Reads the files. The config map is read by [`Self::run`].
    pub(crate) fn new(
        config: &AuthenticationConfig,
        store: Arc<TrustStore>,
        upstream: Upstream,
    ) -> Result<Self, AuthSetupError> {
        let open = |path: &std::path::Path| {
            CaFile::open(path).map_err(|error| AuthSetupError::File {
                path: path.to_owned(),
                cause: error.to_string(),
            })
        };
        let mut client_ca = None;
        if let Some(path) = &config.client_ca {
            let (file, bundle) = open(path)?;
            store.set_client_ca(Setting::Set(Arc::new(bundle)));
            client_ca = Some(file);
        }
        let mut front_proxy = None;
        if let Some(rules) = &config.request_header {
            let (file, ca) = open(&rules.ca)?;
            let [username, uid, group, extra] = FRONT_PROXY_HEADERS.map(|name| [name.to_owned()]);
            let names = RequestHeaderNames::new(
                rules.allowed_names.clone(),
                &username,
                &uid,
                &group,
                &extra,
            );
            let rules = RequestHeaderRules { ca, names: names.clone() };
            store.set_cluster_headers(Setting::Unknown);
            store.set_front_proxy(Setting::Set(Arc::new(rules)));
            front_proxy = Some((file, names));
        }
        Ok(Self {
            store,
            client_ca,
            front_proxy,
            upstream,
            last_map: None,
            is_failing: false,
            failures: 0,
            refused_since: None,
        })
    }

    /// Reads the sources periodically until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut files = tokio::time::interval(FILES_INTERVAL);
        files.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let next = tokio::time::sleep(Duration::ZERO);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = files.tick() => self.poll_files(),
                () = next.as_mut() => {
                    // The request may take a minute to fail. The files can wait for that.
                    let Some(wait) = cancel.run_until_cancelled(self.poll_map()).await else { return };
                    next.as_mut().reset(Instant::now() + wait);
                }
            }
        }
    }

    /// Reads the files once.
    pub(super) fn poll_files(&mut self) {
        if let Some(file) = &mut self.client_ca
            && let Some(new) = file.poll()
        {
            match new {
                Ok(bundle) => {
                    self.store.set_client_ca(Setting::Set(Arc::new(bundle)));
                    tracing::info!(file = %file.path().display(), "loaded a new client CA");
                }
                Err(error) => {
                    self.store.metrics().ca_failed(CaKind::Client);
                    tracing::warn!(
                        file = %file.path().display(), %error,
                        "cannot load the client CA; the old one stays in use"
                    );
                }
            }
        }
        if let Some((file, names)) = &mut self.front_proxy
            && let Some(new) = file.poll()
        {
            match new {
                Ok(ca) => {
                    let rules = RequestHeaderRules { ca, names: names.clone() };
                    self.store.set_front_proxy(Setting::Set(Arc::new(rules)));
                    tracing::info!(file = %file.path().display(), "loaded a new front-proxy CA");
                }
                Err(error) => {
                    self.store.metrics().ca_failed(CaKind::RequestHeader);
                    tracing::warn!(
                        file = %file.path().display(), %error,
                        "cannot load the front-proxy CA; the old one stays in use"
                    );
                }
            }
        }
    }

    /// Reads the config map once. Returns how long to wait before the next time.
    pub(super) async fn poll_map(&mut self) -> Duration {
        match self.get_map().await {
            Ok(map) => {
                (self.failures, self.refused_since) = (0, None);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(
                        "the config map kube-system/extension-apiserver-authentication can be read again"
                    );
                }
                self.apply(map);
                jittered(MAP_INTERVAL)
            }
            Err(error) => {
                self.map_failed(&error);
                self.failures = self.failures.saturating_add(1);
                retry_delay(self.failures)
            }
        }
    }

    async fn get_map(&self) -> Result<ConfigMap, UpstreamError> {
        let get = fetch::get(
            &self.upstream,
            config_map::PATH,
            "application/json",
            None,
            config_map::BYTES_MAX,
        );
        let response = get.await?;
        ConfigMap::parse(response.body())
            .map_err(|error| UpstreamError::Malformed(error.to_string()))
    }

    pub(super) fn map_failed(&mut self, error: &UpstreamError) {
        self.note_refusal(error);
        let metrics = self.store.metrics();
        if self.client_ca.is_none() {
            metrics.ca_failed(CaKind::Client);
        }
        if self.front_proxy.is_none() {
            metrics.ca_failed(CaKind::RequestHeader);
        }
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                %error,
                "cannot read the config map kube-system/extension-apiserver-authentication; its last content \
                 stays in use, and until it was read once, client certificates are not accepted, or, where \
                 files replace it, their users' requests are not forwarded (Weir needs the role \
                 extension-apiserver-authentication-reader)"
            );
        }
    }

    /// Gives up the names of the cluster's front-proxy headers once the API server has refused to
    /// show them for long. A short refusal is no answer: a starting API server refuses everything.
    fn note_refusal(&mut self, error: &UpstreamError) {
        let UpstreamError::Status { code: StatusCode::FORBIDDEN | StatusCode::NOT_FOUND, .. } =
            error
        else {
            self.refused_since = None;
            return;
        };
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        let are_unknown = matches!(self.store.proxy_headers().load().cluster, Setting::Unknown);
        if are_unknown && since.elapsed() >= REFUSAL_LASTS {
            self.store.set_cluster_headers(Setting::Unset);
            tracing::warn!(
                "the API server does not show Weir the names of its front-proxy headers; only those of \
                 authentication.requestHeader are removed from clients' requests, and must be all that it reads"
            );
        }
    }

    fn apply(&mut self, map: ConfigMap) {
        let old = self.last_map.as_ref();
        if self.client_ca.is_none() && old.map(ConfigMap::client_text) != Some(map.client_text()) {
            match map.client_ca() {
                Ok(bundle) => {
                    self.store.set_client_ca(bundle.into());
                    tracing::info!("loaded the client CA from the cluster's config map");
                }
                Err(error) => {
                    self.store.metrics().ca_failed(CaKind::Client);
                    tracing::warn!(
                        %error,
                        "cannot load the client CA from the cluster's config map; the old one stays in use"
                    );
                }
            }
        }
        let is_new = old.map(ConfigMap::front_proxy_text) != Some(map.front_proxy_text());
        if is_new && self.front_proxy.is_some() {
            match map.front_proxy_headers() {
                Ok(names) => self.store.set_cluster_headers(names.into()),
                Err(error) => {
                    self.store.metrics().ca_failed(CaKind::RequestHeader);
                    tracing::warn!(
                        %error,
                        "cannot read the names of the cluster's front-proxy headers; the old ones stay in use"
                    );
                }
            }
        } else if is_new {
            match map.front_proxy() {
                Ok(rules) => {
                    self.store.set_front_proxy(rules.into());
                    tracing::info!("loaded the front-proxy rules from the cluster's config map");
                }
                Err(error) => {
                    self.store.metrics().ca_failed(CaKind::RequestHeader);
                    tracing::warn!(
                        %error,
                        "cannot load the front-proxy rules from the cluster's config map; the old ones stay in use"
                    );
                }
            }
        }
        self.last_map = Some(map);
    }
}

/// Returns the delay after `failures` failures in a row: it doubles from a second to a minute.
fn retry_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
    jittered(RETRY_DELAY_MIN.saturating_mul(1 << doublings).min(MAP_INTERVAL))
}

/// Adds up to a tenth, so that replicas which were started at once do not send their requests at
/// once.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + fastrand::f64() / 10.0)
}

/// How long the API server must refuse to show the config map until Weir does without it: longer
/// than an API server needs to start, and than it takes to grant a forgotten role.
const REFUSAL_LASTS: Duration = Duration::from_secs(30);
/// The same as for serving certificates.
const FILES_INTERVAL: Duration = Duration::from_secs(10);
/// Certificates of a new CA are used only long after it was published.
const MAP_INTERVAL: Duration = Duration::from_secs(60);
/// The delay after the first failure. It is short because no client certificate is accepted before
/// the config map was read.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
/// Reaches a minute, and keeps the shift from overflowing.
const DOUBLINGS_MAX: u32 = 6;
