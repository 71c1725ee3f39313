//! The source of the `Authorization` of Weir's own requests.
//!
//! Weir reads token files itself: kube-client keeps a trailing newline, which no header may
//! contain. It also runs exec plugins itself ([`exec`]). Auth providers are
//! kube-client's. Its layer wraps a service that only returns the header.
//!
//! The layer runs for one request at a time ([`Provider::runs`]), so that a thousand requests which
//! find a token expired run one command, and all learn of its failure at once.
//!
//! Lock: that of [`Provider::last_failure`], held for a few instructions.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use http_body_util::Empty;
use kube_client::Config;
use kube_client::client::middleware::AuthLayer;
use kube_client::client::{AuthError, ConfigExt};
use kube_client::config::{AuthInfo, ExecInteractiveMode};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt};

use super::exec::{Credential, ExecPlugin};
use super::{errors, exec};
use crate::tasks::single_permit::SinglePermit;
use crate::upstream::error::UpstreamError;

/// The time-out of an auth provider, which may run a command.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(60);
/// A provider that failed is not used again within this time. Each use may be a process, and one
/// that hangs occupies a thread.
const FAILURE_INTERVAL: Duration = Duration::from_secs(2);

/// The source of the `Authorization` header.
pub(crate) enum TokenSource {
    /// No header: Weir is anonymous or has a client certificate.
    None,
    /// A value that is valid until the files change.
    Static(HeaderValue),
    /// An exec plugin that returns tokens.
    Exec(Arc<ExecPlugin>),
    /// An auth provider, whose token expires.
    Provider(Arc<Provider>),
    /// An exec plugin that returned a client certificate.
    ExecCertificate,
}

/// An auth provider.
pub(crate) struct Provider {
    /// kube-client's own refreshing layer.
    layer: AuthLayer,
    /// Used in messages.
    auth: AuthInfo,
    /// Used in messages.
    origin: String,
    /// The layer runs once at a time.
    runs: SinglePermit,
    /// The time and error of the last run; `None` after a success.
    last_failure: Mutex<Option<(Instant, UpstreamError)>>,
}

impl TokenSource {
    /// Reads the token file or runs the exec plugin, if there is one. Blocks. In `config`, a
    /// certificate of the plugin takes the plugin's place, which must not be run once more.
    pub(super) fn new(config: &mut Config, origin: &str) -> Result<Self, UpstreamError> {
        let auth = &config.auth_info;
        let own_file = auth.token.is_none()
            && auth.auth_provider.is_none()
            && (auth.username.is_none() || auth.password.is_none());
        if let Some(path) = auth.token_file.as_deref().filter(|_| own_file) {
            return token_file(path, origin).map(Self::Static);
        }
        let credential = exec::configured(auth).map(|exec| exec::first_run(exec, origin));
        let auth = &mut config.auth_info;
        auth.exec = None;
        match credential.transpose()? {
            Some(Credential::Token(plugin)) => return Ok(Self::Exec(plugin)),
            Some(Credential::Certificate { certificate, key }) => {
                auth.client_certificate_data = Some(STANDARD.encode(certificate));
                auth.client_key_data = Some(STANDARD.encode(key).into());
                return Ok(Self::ExecCertificate);
            }
            None => {}
        }
        let layer = config
            .auth_layer()
            .map_err(|error| errors::credentials(origin, &config.auth_info, &error))?;
        Ok(layer.map_or(Self::None, |layer| {
            Self::Provider(Arc::new(Provider {
                layer,
                auth: config.auth_info.clone(),
                origin: origin.to_owned(),
                runs: SinglePermit::default(),
                last_failure: Mutex::default(),
            }))
        }))
    }

    /// Returns the value for a request that is sent now.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, UpstreamError> {
        let provider = match self {
            Self::None | Self::ExecCertificate => return Ok(None),
            Self::Static(value) => return Ok(Some(value.clone())),
            Self::Exec(plugin) => return Arc::clone(plugin).header().await.map(Some),
            Self::Provider(provider) => Arc::clone(provider),
        };
        // The provider runs in its own task. It continues when the client is gone, and the next
        // request must not start a second one.
        let header = tokio::spawn(async move { provider.header().await });
        header.await.unwrap_or_else(|_| {
            Err(UpstreamError::Credentials("the task that gets a token failed".to_owned()))
        })
    }

    /// Returns whether a 401 should run a plugin again.
    pub(super) fn is_exec(&self) -> bool {
        matches!(self, Self::Exec(_) | Self::Provider(_) | Self::ExecCertificate)
    }

    /// Returns whether a plugin returned a certificate.
    pub(super) fn is_exec_certificate(&self) -> bool {
        matches!(self, Self::ExecCertificate)
    }
}

impl Provider {
    async fn header(&self) -> Result<Option<HeaderValue>, UpstreamError> {
        let _permit = self.runs.acquire().await;
        let last_failure = self.last_failure.lock().clone();
        if let Some((at, error)) = last_failure
            && at.elapsed() < FAILURE_INTERVAL
        {
            return Err(error);
        }
        let refuse = |text: String| UpstreamError::Credentials(format!("{}: {text}", self.origin));
        let header = match tokio::time::timeout(PROVIDER_TIMEOUT, request_header(&self.layer)).await
        {
            Ok(Ok(mut response)) => Ok(response.headers_mut().remove(AUTHORIZATION)),
            Ok(Err(error)) => Err(refuse(match error.downcast_ref::<AuthError>() {
                Some(failure) => errors::auth_text(&self.auth, failure),
                None => "the auth provider returned no token".to_owned(),
            })),
            Err(_) => Err(refuse(format!(
                "the auth provider returned no token within {PROVIDER_TIMEOUT:?}"
            ))),
        };
        *self.last_failure.lock() =
            header.as_ref().err().map(|error| (Instant::now(), error.clone()));
        header
    }
}

/// Returns the header that kube-client adds to a request. Boxed, because the compiler does not see
/// through the layer's service that the future is `Send`.
fn request_header(layer: &AuthLayer) -> BoxFuture<'static, Result<Response<()>, BoxError>> {
    let service = tower::service_fn(|mut request: Request<Empty<Bytes>>| {
        let mut response = Response::new(());
        if let Some(value) = request.headers_mut().remove(AUTHORIZATION) {
            response.headers_mut().insert(AUTHORIZATION, value);
        }
        std::future::ready(Ok::<_, BoxError>(response))
    });
    Box::pin(layer.layer(service).oneshot(Request::new(Empty::new())))
}

/// Makes plugins run without a terminal if they allow it: a server has none.
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
        .map_err(|_| refuse("the token is not a valid header value".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
