//! Messages for kube-client's errors. Its own messages may contain an exec plugin's environment,
//! its output with a token, or lines of the kubeconfig.

use kube_client::Error;
use kube_client::client::AuthError;
use kube_client::config::{AuthInfo, KubeconfigError, LoadDataError};

use crate::upstream::error::{UpstreamError, chain};

/// Returns the error of creating a TLS configuration or an `Authorization` from a kubeconfig.
pub(super) fn credentials(origin: &str, auth: &AuthInfo, failure: &Error) -> UpstreamError {
    let text = match failure {
        Error::Auth(failure) => auth_text(auth, failure),
        Error::InferKubeconfig(failure) => kubeconfig_text(failure),
        Error::RustlsTls(failure) => chain(failure),
        _ => "the credentials cannot be used".to_owned(),
    };
    UpstreamError::Credentials(format!("{origin}: {text}"))
}

/// Returns the message of an error of an exec plugin or token.
pub(super) fn auth_text(auth: &AuthInfo, failure: &AuthError) -> String {
    let plugin = auth
        .exec
        .as_ref()
        .and_then(|exec| exec.command.as_deref())
        .or_else(|| auth.auth_provider.as_ref().map(|provider| provider.name.as_str()))
        .unwrap_or("(no command)");
    match failure {
        AuthError::AuthExecStart(failure) => {
            format!("the exec plugin {plugin} cannot be run: {failure}")
        }
        AuthError::AuthExecRun { out, .. } => {
            format!("the exec plugin {plugin} failed ({}); run it by hand to see why", out.status)
        }
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            format!("the exec plugin {plugin} wrote no valid ExecCredential")
        }
        AuthError::ExecPluginFailed => {
            format!("the exec plugin {plugin} wrote an ExecCredential without a status")
        }
        AuthError::UnrefreshableTokenResponse => {
            format!("the exec plugin {plugin} returned no token")
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            format!("the exec plugin {plugin} wrote an expirationTimestamp that is not a time")
        }
        AuthError::MissingCommand => "exec has no command".to_owned(),
        AuthError::InvalidBasicAuth(_) => {
            "the user name or password is not a valid header value".to_owned()
        }
        AuthError::InvalidBearerToken(_) => {
            "the token is not a valid header value; check it for line breaks".to_owned()
        }
        AuthError::ReadTokenFile(failure, path) => format!("{}: {failure}", path.display()),
        AuthError::ExecMissingClusterInfo => {
            format!("the exec plugin {plugin} requires cluster info, which is not configured")
        }
        _ => format!("{plugin} cannot be used as an auth provider"),
    }
}

/// Returns the message of an error of a kubeconfig.
pub(super) fn kubeconfig_text(failure: &KubeconfigError) -> String {
    match failure {
        KubeconfigError::CurrentContextNotSet => {
            "it has no current-context, and upstream.context is not set".to_owned()
        }
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::ReadConfig(failure, path) => format!("{}: {failure}", path.display()),
        KubeconfigError::Parse(failure) => match failure.location() {
            // The library's own message quotes the surrounding lines, which may contain a token.
            Some(at) => {
                format!("it is not a valid kubeconfig: line {}, column {}", at.line(), at.column())
            }
            None => "it is not a valid kubeconfig".to_owned(),
        },
        KubeconfigError::MissingClusterUrl => "the cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(_) => "the cluster's server is not a URL".to_owned(),
        KubeconfigError::ParseProxyUrl(_) => "a proxy's URL cannot be parsed".to_owned(),
        KubeconfigError::LoadCertificateAuthority(failure) => {
            format!("certificate-authority: {}", data_text(failure))
        }
        KubeconfigError::LoadClientCertificate(failure) => {
            format!("client-certificate: {}", data_text(failure))
        }
        KubeconfigError::LoadClientKey(failure) => format!("client-key: {}", data_text(failure)),
        KubeconfigError::ParseCertificates(_) => "certificate-authority is not PEM".to_owned(),
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            "its files cannot be merged: kind or apiVersion differ".to_owned()
        }
        KubeconfigError::FindPath => "found no home directory".to_owned(),
    }
}

fn data_text(failure: &LoadDataError) -> String {
    match failure {
        LoadDataError::DecodeBase64(_) => "its data is not base64".to_owned(),
        LoadDataError::ReadFile(failure, path) => format!("{}: {failure}", path.display()),
        LoadDataError::NoBase64DataOrFile => "it is missing".to_owned(),
    }
}
