//! Exec credential plugins: programs that print a credential, as client-go runs them.
//!
//! A plugin gets [`TIME_MAX`]. One that hangs is killed together with its children, the error says
//! so, and a later request runs it again. kube-client would wait for it for ever, and hold the lock
//! of the token meanwhile (`docs/decisions/kubeconfig.md`).
//!
//! A token is renewed from [`RENEWAL`] before its expiry on. Until it expires requests use it, so
//! that a slow plugin delays nobody. Without a valid token requests wait for one run of the plugin,
//! and all learn of its failure at once.
//!
//! Lock order: `renewal`, which is held while the plugin runs, then `token`.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use kube_client::config::{ExecConfig, ExecInteractiveMode};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::Instant;

use crate::tasks::single_permit::{Permit, SinglePermit};
use crate::upstream::error::UpstreamError;

/// An exec plugin that returns tokens.
pub(crate) struct ExecPlugin {
    exec: ExecConfig,
    /// Used in messages.
    origin: String,
    token: Mutex<Token>,
    /// The plugin runs once at a time.
    runs: SinglePermit,
    /// The start of the last run but the first.
    last_run: Mutex<Option<Instant>>,
    /// The time and error of the last run; `None` after a success.
    last_failure: Mutex<Option<(Instant, UpstreamError)>>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    /// `None` for a token that does not expire.
    expires: Option<Timestamp>,
}

/// The credential that a plugin returned.
pub(super) enum Credential {
    /// Tokens, renewed by the plugin.
    Token(Arc<ExecPlugin>),
    /// A client certificate and its key, both in PEM.
    Certificate { certificate: String, key: String },
}

/// Runs a plugin for the first time. Must be called on a thread that may block.
pub(super) fn first_run(exec: &ExecConfig, origin: &str) -> Result<Credential, UpstreamError> {
    if exec.interactive_mode != Some(ExecInteractiveMode::Never) {
        return Err(UpstreamError::Credentials(format!(
            "{origin}: the exec plugin {} needs a terminal",
            name(exec)
        )));
    }
    let status = tokio::runtime::Handle::current().block_on(run(exec, origin))?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let (Some(certificate), Some(key)) =
        (given(&status.client_certificate_data), given(&status.client_key_data))
    {
        return Ok(Credential::Certificate { certificate, key });
    }
    Ok(Credential::Token(Arc::new(ExecPlugin {
        exec: exec.clone(),
        origin: origin.to_owned(),
        token: Mutex::new(token(exec, origin, &status)?),
        runs: SinglePermit::default(),
        last_run: Mutex::default(),
        last_failure: Mutex::default(),
    })))
}

impl ExecPlugin {
    /// Returns the header for a request that is sent now.
    pub(super) async fn header(self: Arc<Self>) -> Result<HeaderValue, UpstreamError> {
        let token = self.token.lock().clone();
        if !token.expires_within(RENEWAL) {
            return Ok(token.header);
        }
        let plugin = Arc::clone(&self);
        if !token.expires_within(SignedDuration::ZERO) {
            // A plugin with a cache of its own returns the same token until it expires.
            let is_due = self.last_run.lock().is_none_or(|at| at.elapsed() >= EARLY_INTERVAL);
            // The failure is reported when the token has expired.
            if is_due && let Some(permit) = self.runs.try_acquire() {
                tokio::spawn(async move { plugin.renew(permit).await });
            }
            return Ok(token.header);
        }
        // The plugin runs in its own task. It continues when the client is gone, and the next
        // request must not start a second one.
        let renewed = tokio::spawn(async move {
            let permit = plugin.runs.acquire().await;
            let current = plugin.token.lock().clone();
            if current.header != token.header && !current.expires_within(SignedDuration::ZERO) {
                return Ok(current.header);
            }
            plugin.renew(permit).await
        });
        renewed.await.unwrap_or_else(|_| {
            Err(UpstreamError::Credentials("the task that gets a token failed".to_owned()))
        })
    }

    /// Runs the plugin, unless it failed a moment ago.
    async fn renew(&self, _permit: Permit) -> Result<HeaderValue, UpstreamError> {
        let last_failure = self.last_failure.lock().clone();
        if let Some((at, error)) = last_failure
            && at.elapsed() < FAILURE_INTERVAL
        {
            return Err(error);
        }
        *self.last_run.lock() = Some(Instant::now());
        let status = run(&self.exec, &self.origin).await;
        let renewed = status.and_then(|status| token(&self.exec, &self.origin, &status));
        *self.last_failure.lock() =
            renewed.as_ref().err().map(|error| (Instant::now(), error.clone()));
        let header = renewed.map(|token| {
            let header = token.header.clone();
            *self.token.lock() = token;
            header
        });
        if let Err(error) = &header {
            tracing::warn!(%error, "cannot renew the token for the upstream");
        }
        header
    }
}

impl Token {
    fn expires_within(&self, time: SignedDuration) -> bool {
        self.expires.is_some_and(|expires| Timestamp::now() + time >= expires)
    }
}

/// The status of an ExecCredential.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs a plugin once. The error contains neither its environment nor its output.
async fn run(exec: &ExecConfig, origin: &str) -> Result<ExecStatus, UpstreamError> {
    #[derive(Deserialize)]
    struct ExecCredential {
        status: Option<ExecStatus>,
    }
    let name = name(exec);
    let refuse = |text: String| UpstreamError::Credentials(format!("{origin}: {text}"));
    let plugin = |text: String| refuse(format!("the exec plugin {name} {text}"));
    let Some(command) = exec.command.as_deref() else {
        return Err(refuse("exec has no command".to_owned()));
    };
    let command = command_line(command, exec).map_err(plugin)?;
    let output = output(command).await.map_err(plugin)?;
    let credential: ExecCredential = serde_saphyr::from_slice(&output)
        .map_err(|_| plugin("wrote no valid ExecCredential".to_owned()))?;
    credential.status.ok_or_else(|| plugin("wrote an ExecCredential without a status".to_owned()))
}

/// Returns what a plugin writes to its standard output. Its standard error is dropped, which may
/// contain credentials. The error is a message.
///
/// The plugin leads a process group of its own, so that its children can be killed with it: a shell
/// script that hangs usually waits for a child.
async fn output(mut command: Command) -> Result<Vec<u8>, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot be run: {error}"))?;
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let stdout = child.stdout.take();
    let mut output = Vec::new();
    let running = async {
        // One that writes more cannot do so any more, and ends.
        if let Some(stdout) = stdout {
            stdout.take(OUTPUT_MAX_BYTES + 1).read_to_end(&mut output).await?;
        }
        child.wait().await
    };
    let Ok(ended) = tokio::time::timeout(TIME_MAX, running).await else {
        if let Some(group) = group
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "the processes of an exec plugin have ended already");
        }
        return Err(format!(
            "did not end within {TIME_MAX:?} and was killed; run it by hand to see why"
        ));
    };
    match ended {
        _ if output.len() as u64 > OUTPUT_MAX_BYTES => {
            Err("wrote too much for an ExecCredential".to_owned())
        }
        Ok(status) if status.success() => Ok(output),
        Ok(status) => Err(format!("failed ({status}); run it by hand to see why")),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

fn command_line(command: &str, exec: &ExecConfig) -> Result<Command, String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ExecInfo<'a> {
        kind: &'static str,
        api_version: Option<&'a str>,
        spec: serde_json::Value,
    }
    let spec = if exec.provide_cluster_info {
        let cluster = exec.cluster.as_ref().ok_or("requires cluster info, which is missing")?;
        serde_json::json!({"interactive": false, "cluster": cluster})
    } else {
        serde_json::json!({"interactive": false})
    };
    let info = ExecInfo { kind: "ExecCredential", api_version: exec.api_version.as_deref(), spec };
    let info = serde_json::to_string(&info).map_err(|_| "cannot be given its input".to_owned())?;
    let mut command = Command::new(command);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command.env("KUBERNETES_EXEC_INFO", info);
    Ok(command)
}

fn token(exec: &ExecConfig, origin: &str, status: &ExecStatus) -> Result<Token, UpstreamError> {
    let refuse = |text: &str| {
        let name = name(exec);
        UpstreamError::Credentials(format!("{origin}: the exec plugin {name} {text}"))
    };
    let token = status.token.as_deref().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| refuse("returned no token"))?;
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| refuse("returned a token that is not a valid header value"))?;
    header.set_sensitive(true);
    let expires = status.expiration_timestamp.as_deref().map(str::parse).transpose();
    let expires = expires.map_err(|_| refuse("wrote an expirationTimestamp that is not a time"))?;
    Ok(Token { header, expires })
}

fn name(exec: &ExecConfig) -> &str {
    exec.command.as_deref().unwrap_or("(no command)")
}

/// How long a plugin may run. Some log in over the network, which takes seconds.
const TIME_MAX: Duration = Duration::from_secs(30);
/// The time before the expiry from which on a token is renewed.
const RENEWAL: SignedDuration = SignedDuration::from_secs(60);
/// A plugin that failed is not run again within this time: each run is a process.
const FAILURE_INTERVAL: Duration = Duration::from_secs(2);
/// The least time between two runs while the token is still valid.
const EARLY_INTERVAL: Duration = Duration::from_secs(10);
/// The largest output: certificates have some kilobytes.
const OUTPUT_MAX_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests;
