//! The `Authorization` of Weir's own requests.
//!
//! Token files are read here rather than by kube-client, which keeps a trailing newline that no header may hold.
//! Exec plugins and auth providers are kube-client's: its layer is asked for the header around a service that only looks at it.
//!
//! Lock: [`Plugin::failed`] is held while the layer is asked, so that a thousand requests which find a token expired run one
//! plugin, and all learn of its failure at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use http_body_util::Empty;
use kube_client::Config;
use kube_client::client::middleware::AuthLayer;
use kube_client::client::{AuthError, ConfigExt};
use kube_client::config::{AuthInfo, ExecInteractiveMode};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt};

use super::{EXEC_TIMEOUT, errors};
use crate::upstream::error::UpstreamError;

/// See the module.
pub(crate) enum Authorizer {
    /// Nothing is sent: anonymous, or a client certificate from files.
    None,
    /// The same value until the files change.
    Static(HeaderValue),
    /// An exec plugin or provider whose token expires.
    Plugin(Arc<Plugin>),
    /// An exec plugin that gave a client certificate.
    ExecCertificate,
}

/// See [`Authorizer::Plugin`].
pub(crate) struct Plugin {
    /// kube-client's own refreshing layer.
    layer: AuthLayer,
    /// For messages.
    auth: AuthInfo,
    /// For messages.
    origin: String,
    /// When it failed last, and why; `None` after a success.
    failed: Mutex<Option<(Instant, UpstreamError)>>,
}

impl Authorizer {
    /// Reads or runs what is needed once. Blocks.
    pub(super) fn new(config: &Config, origin: &str) -> Result<Self, UpstreamError> {
        let auth = &config.auth_info;
        let own_file = auth.token.is_none()
            && auth.auth_provider.is_none()
            && (auth.username.is_none() || auth.password.is_none());
        if let Some(path) = auth.token_file.as_deref().filter(|_| own_file) {
            return token_file(path, origin).map(Self::Static);
        }
        if let Some(exec) = &auth.exec
            && exec.interactive_mode != Some(ExecInteractiveMode::Never)
        {
            return Err(UpstreamError::Credentials(format!(
                "{origin}: the exec plugin {} needs a terminal",
                exec.command.as_deref().unwrap_or("(no command)")
            )));
        }
        let layer =
            config.auth_layer().map_err(|error| errors::credentials(origin, auth, &error))?;
        Ok(match layer {
            Some(layer) => Self::Plugin(Arc::new(Plugin {
                layer,
                auth: auth.clone(),
                origin: origin.to_owned(),
                failed: Mutex::new(None),
            })),
            None if auth.exec.is_some() => Self::ExecCertificate,
            None => Self::None,
        })
    }

    /// The header's value for a request sent now.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, UpstreamError> {
        let plugin = match self {
            Self::None | Self::ExecCertificate => return Ok(None),
            Self::Static(value) => return Ok(Some(value.clone())),
            Self::Plugin(plugin) => Arc::clone(plugin),
        };
        // A task of its own: a plugin runs on when a client goes away, and the next one must not start another beside it.
        let asked = tokio::spawn(async move { plugin.header().await });
        asked.await.unwrap_or_else(|_| {
            Err(UpstreamError::Credentials("the task that asks for a token failed".to_owned()))
        })
    }

    /// Whether a 401 should ask a plugin again.
    pub(super) fn is_exec(&self) -> bool {
        matches!(self, Self::Plugin(_) | Self::ExecCertificate)
    }

    /// Whether a plugin gave a certificate.
    pub(super) fn is_exec_certificate(&self) -> bool {
        matches!(self, Self::ExecCertificate)
    }
}

impl Plugin {
    async fn header(&self) -> Result<Option<HeaderValue>, UpstreamError> {
        let mut failed = self.failed.lock().await;
        if let Some((at, error)) = &*failed
            && at.elapsed() < FAILURE_INTERVAL
        {
            return Err(error.clone());
        }
        let refuse = |text: String| UpstreamError::Credentials(format!("{}: {text}", self.origin));
        let asked = match tokio::time::timeout(EXEC_TIMEOUT, ask(&self.layer)).await {
            Ok(Ok(mut response)) => Ok(response.headers_mut().remove(AUTHORIZATION)),
            Ok(Err(error)) => Err(refuse(match error.downcast_ref::<AuthError>() {
                Some(failure) => errors::auth_text(&self.auth, failure),
                None => "no token could be had".to_owned(),
            })),
            Err(_) => Err(refuse(format!("no token could be had within {EXEC_TIMEOUT:?}"))),
        };
        *failed = asked.as_ref().err().map(|error| (Instant::now(), error.clone()));
        asked
    }
}

/// A plugin that failed is not asked again for so long: each run is a process, and one that hangs keeps a thread.
const FAILURE_INTERVAL: Duration = Duration::from_secs(2);

/// What kube-client puts into a request. Boxed: the compiler can't see through the layer's service that the future is `Send`.
fn ask(layer: &AuthLayer) -> BoxFuture<'static, Result<Response<()>, BoxError>> {
    let look = tower::service_fn(|mut request: Request<Empty<Bytes>>| {
        let mut response = Response::new(());
        if let Some(value) = request.headers_mut().remove(AUTHORIZATION) {
            response.headers_mut().insert(AUTHORIZATION, value);
        }
        std::future::ready(Ok::<_, BoxError>(response))
    });
    Box::pin(layer.layer(look).oneshot(Request::new(Empty::new())))
}

/// Makes plugins run without a terminal, where they allow it: a server has none.
pub(super) fn never_interactive(auth: &mut AuthInfo) {
    if let Some(exec) = &mut auth.exec
        && exec.interactive_mode != Some(ExecInteractiveMode::Always)
    {
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
}

fn token_file(path: &str, origin: &str) -> Result<HeaderValue, UpstreamError> {
    let refuse = |text: String| UpstreamError::Credentials(format!("{origin}: {path}: {text}"));
    let token = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(refuse("the token is empty".to_owned()));
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| refuse("the token cannot stand in a header".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
