//! The source of the `Authorization` of Weir's own requests.
//!
//! Weir reads token files itself: kube-client keeps a trailing newline, which no header may
//! contain. It also runs exec plugins itself ([`exec`]). Auth providers are not supported, as
//! client-go removed them, but for the `id-token` that one for `oidc` has left in the kubeconfig.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kube_client::Config;
use kube_client::config::{AuthInfo, AuthProviderConfig, ExecInteractiveMode};
use secrecy::ExposeSecret;

use super::exec::{self, Credential, ExecPlugin};
use crate::upstream::error::UpstreamError;

/// The source of the `Authorization` header.
pub(crate) enum TokenSource {
    /// No header: Weir is anonymous or has a client certificate.
    None,
    /// A value that is valid until the files change.
    Static(HeaderValue),
    /// An exec plugin that returns tokens.
    Exec(Arc<ExecPlugin>),
    /// An exec plugin that returned a client certificate.
    ExecCertificate,
}

impl TokenSource {
    /// Takes the first credential that there is, in client-go's order. Reads the token file or
    /// runs the exec plugin. Blocks. In `config`, a certificate of the plugin takes the plugin's
    /// place, which must not be run once more.
    pub(super) fn new(config: &mut Config, origin: &str) -> Result<Self, UpstreamError> {
        let auth = &mut config.auth_info;
        let exec = auth.exec.take();
        if let Some(header) = static_header(auth) {
            let refuse = |text| UpstreamError::Credentials(format!("{origin}: {text}"));
            return header.map(Self::Static).map_err(refuse);
        }
        let Some(exec) = exec else { return Ok(Self::None) };
        match exec::first_run(&exec, origin)? {
            Credential::Token(plugin) => Ok(Self::Exec(plugin)),
            Credential::Certificate { certificate, key } => {
                auth.client_certificate_data = Some(STANDARD.encode(certificate));
                auth.client_key_data = Some(STANDARD.encode(key).into());
                Ok(Self::ExecCertificate)
            }
        }
    }

    /// Returns the value for a request that is sent now.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, UpstreamError> {
        match self {
            Self::None | Self::ExecCertificate => Ok(None),
            Self::Static(value) => Ok(Some(value.clone())),
            Self::Exec(plugin) => Arc::clone(plugin).header().await.map(Some),
        }
    }

    /// Returns whether a 401 should run a plugin again.
    pub(super) fn is_exec(&self) -> bool {
        matches!(self, Self::Exec(_) | Self::ExecCertificate)
    }

    /// Returns whether a plugin returned a certificate.
    pub(super) fn is_exec_certificate(&self) -> bool {
        matches!(self, Self::ExecCertificate)
    }
}

/// Makes plugins run without a terminal if they allow it: a server has none.
pub(super) fn never_interactive(auth: &mut AuthInfo) {
    if let Some(exec) = &mut auth.exec
        && exec.interactive_mode != Some(ExecInteractiveMode::Always)
    {
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
}

/// Returns the header of a credential that no plugin renews. The error is a message.
fn static_header(auth: &AuthInfo) -> Option<Result<HeaderValue, String>> {
    if let Some(provider) = &auth.auth_provider {
        return Some(id_token(provider));
    }
    let user = auth.username.as_ref().filter(|user| !user.is_empty());
    if let (Some(user), Some(password)) = (user, &auth.password) {
        let login = STANDARD.encode(format!("{user}:{}", password.expose_secret()));
        return Some(sensitive(&format!("Basic {login}")));
    }
    // The file counts more than the token, as in client-go.
    if let Some(path) = auth.token_file.as_deref().filter(|path| !path.is_empty()) {
        return Some(token_file(path).map_err(|problem| format!("{path}: {problem}")));
    }
    let token = auth.token.as_ref().map(|token| token.expose_secret());
    token.filter(|token| !token.is_empty()).map(|token| sensitive(&format!("Bearer {token}")))
}

fn id_token(provider: &AuthProviderConfig) -> Result<HeaderValue, String> {
    match provider.config.get("id-token").filter(|_| provider.name == "oidc") {
        Some(token) => sensitive(&format!("Bearer {token}")),
        None => Err(format!(
            "the auth provider {} is not supported; use an exec plugin, such as kubelogin or \
             gke-gcloud-auth-plugin",
            provider.name
        )),
    }
}

fn token_file(path: &str) -> Result<HeaderValue, String> {
    let token = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    match token.trim() {
        "" => Err("the token is empty".to_owned()),
        token => sensitive(&format!("Bearer {token}")),
    }
}

fn sensitive(value: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(value).map_err(|_| {
        "the token is not a valid header value; check it for line breaks".to_owned()
    })?;
    value.set_sensitive(true);
    Ok(value)
}
