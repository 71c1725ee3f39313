//! Reads the configuration file again while Weir runs (`docs/decisions/configuration.md`).
//!
//! SIGHUP has the file read at once. Besides, the file is read every ten seconds, and a change
//! counts once it was read twice ([`ObservedFile`]), also one since the text was read that Weir was
//! started with. A ConfigMap's file is a symbolic link that the kubelet moves, so it is the content
//! that is compared, not a time or an inode.
//!
//! The whole file is checked first. An invalid one changes nothing, whichever field is wrong; it
//! does not affect `/readyz`, since a running Weir is better than none. Fields that cannot change
//! at run time are named in the log, and keep their values.
//!
//! Invariant: `running` is what the parts of Weir use.

mod observed;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use prometheus::{Gauge, IntCounterVec, IntGauge, IntGaugeVec};
use serde_json::Value;
use tokio::sync::Notify;

use crate::admin::ConfigurationFigures;
use crate::app::reload::observed::{ObservedFile, Step};
use crate::app::service_manager;
use crate::cache::registry::Registry;
use crate::config::Config;
use crate::config::file::{ConfigFile, FileError};
use crate::config::reload::Changes;
use crate::config::resolve::{Overrides, Problem, Problems};
use crate::server::ServerReload;
use crate::tasks::spawn_blocking;
use crate::telemetry::events::{EventKind, Events};
use crate::telemetry::log_filter::LogFilter;
use crate::telemetry::metrics::{families, saturating_i64};

/// The file of the configuration, and the flags that override it.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The file.
    pub path: PathBuf,
    /// The text of the file with which Weir starts.
    pub text: String,
    /// The flags.
    pub overrides: Overrides,
    /// The interval of reading the file; [`POLL_INTERVAL`] but in tests.
    pub poll_interval: Duration,
}

/// The reason why a file is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file cannot be read, or is no configuration.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has wrong values.
    #[error(transparent)]
    Values(#[from] Problems),
    /// The filter of the log cannot be replaced.
    #[error("the log filter cannot be replaced: {0}")]
    LogFilter(String),
}

/// Reads the configuration again, and applies it.
pub struct Reloader {
    path: PathBuf,
    overrides: Overrides,
    poll_interval: Duration,
    parts: ReloadParts,
    running: Arc<ArcSwap<Config>>,
    metrics: ReloadMetrics,
    file: ObservedFile,
}

/// The parts of a running Weir that a reload changes.
pub struct ReloadParts {
    /// The caches.
    pub registry: Registry,
    /// The server.
    pub server: ServerReload,
    /// The filter of the log; `None` if the process has another logger.
    pub log: Option<LogFilter>,
}

impl ConfigSource {
    /// Reads a file, with which Weir is to start.
    pub fn open(path: PathBuf, overrides: Overrides) -> Result<Self, FileError> {
        let text = ConfigFile::read_text(&path)?;
        Ok(Self { path, text, overrides, poll_interval: POLL_INTERVAL })
    }

    /// Parses the text with which Weir starts.
    pub fn parse(&self) -> Result<ConfigFile, FileError> {
        ConfigFile::parse(&self.path.display().to_string(), &self.text)
    }
}

impl Reloader {
    /// Begins with the configuration that Weir was started with. `running` is where its parts see
    /// what they do not get otherwise.
    pub fn new(
        source: ConfigSource,
        parts: ReloadParts,
        running: Arc<ArcSwap<Config>>,
        metrics: ReloadMetrics,
    ) -> Self {
        let ConfigSource { path, text, overrides, poll_interval } = source;
        let file = ObservedFile::new(text);
        Self { path, overrides, poll_interval, parts, running, metrics, file }
    }

    /// Reloads at each notification, and after changes of the file. Never returns.
    pub async fn run(mut self, hangup: Arc<Notify>) -> Infallible {
        loop {
            let is_asked = tokio::select! {
                () = hangup.notified() => true,
                () = tokio::time::sleep(self.poll_interval) => false,
            };
            if is_asked {
                service_manager::reloading();
            }
            let path = self.path.clone();
            let read = spawn_blocking(move || read(&path)).await;
            match read {
                Ok(read) => {
                    let file = &mut self.file;
                    match if is_asked { file.asked(read) } else { file.polled(read) } {
                        Step::Take(text) => self.take(&text),
                        Step::Refuse(error) => self.refuse(&error),
                        Step::Wait => {}
                    }
                }
                // The runtime ends.
                Err(error) => tracing::debug!(%error, "the configuration file was not read"),
            }
            if is_asked {
                service_manager::reloaded();
            }
        }
    }

    /// Takes over a text, or reports why not.
    fn take(&self, text: &str) {
        match self.resolve(text).and_then(|new| self.apply(&new)) {
            Ok(changes) => {
                let (applied, pending) = (changes.applied.join(", "), changes.pending.join(", "));
                let file = self.path.display();
                let conflict = changes.conflict.as_ref().map(Problems::to_string);
                let text = match pending.as_str() {
                    "" => format!("The configuration was read again; changed: {applied}."),
                    _ => format!("The configuration was read again; needs a restart: {pending}."),
                };
                self.metrics.events.notable(EventKind::Reload, &file, text, |left_out| {
                    if pending.is_empty() {
                        tracing::info!(%file, applied, left_out, "the configuration was read again");
                    } else {
                        tracing::warn!(%file, applied, needs_restart = pending, conflict, left_out, "the configuration was read again; some fields need a restart");
                    }
                });
                let running = self.running.load();
                report_warnings(&running, self.overrides.memory_limit);
                self.metrics.succeeded(&running, changes.pending.len());
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn resolve(&self, text: &str) -> Result<Config, ReloadError> {
        let file = ConfigFile::parse(&self.path.display().to_string(), text)?;
        Ok(Config::resolve(file, self.overrides.clone())?)
    }

    fn apply(&self, new: &Config) -> Result<Changes, ReloadError> {
        let running = self.running.load_full();
        let (config, changes) = running.reloaded(new);
        if let Some(log) = self.parts.log.as_ref().filter(|_| config.logging != running.logging) {
            log.configure(&config.logging.filter).map_err(ReloadError::LogFilter)?;
        }
        if config.cache != running.cache {
            self.parts.registry.reconfigure(config.cache.clone());
        }
        self.parts.server.apply(&config);
        self.running.store(Arc::new(config));
        *self.metrics.pending_values.lock() = changes.pending_values.clone();
        Ok(changes)
    }

    fn refuse(&self, error: &ReloadError) {
        self.metrics.failed();
        let text = format!("The configuration was not read again: {error}");
        let file = self.path.display();
        self.metrics.events.notable(EventKind::Reload, file, text, |left_out| {
            tracing::error!(%error, left_out, "the configuration was not read again; the running one stays");
        });
    }
}

/// Reads the file, and returns its text. The text may contain no secret: secrets are in files of
/// their own.
fn read(path: &Path) -> Result<String, ReloadError> {
    Ok(ConfigFile::read_text(path)?)
}

/// Logs the warnings about a configuration. `memory_limit` is that of this process, in bytes.
pub fn report_warnings(config: &Config, memory_limit: Option<u64>) {
    let warnings = config.warnings(memory_limit).map_or_else(Vec::new, |Problems(list)| list);
    for Problem { path, message, .. } in warnings {
        tracing::warn!(field = path, "{message}");
    }
}

families! {
    /// The metrics of reloads. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct ReloadMetrics {
        /// Attempts to read the configuration again.
        reloads: IntCounterVec =
            counters_of("weir_config_reloads_total", ("result", &["success", "failure"])),
        /// Whether the last attempt to read the configuration again succeeded.
        successful: IntGauge = gauge("weir_config_last_reload_successful"),
        /// When the running configuration was read.
        last: Gauge = gauge("weir_config_last_reload_success_timestamp_seconds"),
        /// Fields of the configuration that have changed and need a restart.
        pending: IntGauge = gauge("weir_config_pending_fields"),
        /// The running configuration: the beginning of the SHA-256 of what weir check prints of it.
        info: IntGaugeVec = gauge_vec("weir_config_info", &["hash"]),
        ..default {
            events: Events,
            /// The running configuration. A lock of its own.
            figures: Arc<Mutex<ConfigurationFigures>>,
            /// The values of the fields that need a restart, for `/configz`. A lock of its own.
            pending_values: Arc<Mutex<BTreeMap<String, Value>>>,
        }
    }
}

impl ReloadMetrics {
    /// Notes reloads among these events.
    pub fn with_events(self, events: &Events) -> Self {
        Self { events: events.clone(), ..self }
    }

    /// Returns the new values of the fields that need a restart, by their paths.
    pub(super) fn pending_values(&self) -> BTreeMap<String, Value> {
        self.pending_values.lock().clone()
    }

    /// Returns the running configuration in figures.
    pub(super) fn figures(&self) -> ConfigurationFigures {
        self.figures.lock().clone()
    }

    /// Shows the configuration of the start.
    pub fn started(&self, config: &Config) {
        self.successful.set(1);
        self.show(config, 0);
    }

    fn succeeded(&self, config: &Config, pending: usize) {
        self.reloads.with_label_values(&["success"]).inc();
        self.successful.set(1);
        self.show(config, pending);
    }

    fn failed(&self) {
        self.reloads.with_label_values(&["failure"]).inc();
        self.successful.set(0);
    }

    fn show(&self, config: &Config, pending: usize) {
        let (hash, read) = (hash(config), SystemTime::now());
        let since = read.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last.set(since.as_secs_f64());
        self.info.reset();
        self.info.with_label_values(&[&hash]).set(1);
        self.pending.set(saturating_i64(pending));
        *self.figures.lock() = ConfigurationFigures { hash, read: Some(read), pending };
    }
}

/// Returns a short hash of the effective configuration.
pub(super) fn hash(config: &Config) -> String {
    let yaml = config.to_yaml();
    let digest = digest(&SHA256, yaml.as_bytes());
    digest.as_ref().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

/// The usual interval at which the file is read. The kubelet updates a ConfigMap's files about once
/// a minute.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Enough to distinguish configurations.
const HASH_BYTES: usize = 8;
