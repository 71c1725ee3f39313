//! kube-client's errors in words of our own: theirs may hold an exec plugin's environment, its output with a token in it, or
//! lines of the kubeconfig.

use kube_client::Error;
use kube_client::client::AuthError;
use kube_client::config::{AuthInfo, KubeconfigError, LoadDataError};

use crate::upstream::error::{UpstreamError, chain};

/// An error in making TLS or an `Authorization` of what was read.
pub(super) fn credentials(origin: &str, auth: &AuthInfo, failure: &Error) -> UpstreamError {
    let text = match failure {
        Error::Auth(failure) => auth_text(auth, failure),
        Error::InferKubeconfig(failure) => kubeconfig_text(failure),
        Error::RustlsTls(failure) => chain(failure),
        _ => "they cannot be used".to_owned(),
    };
    UpstreamError::Credentials(format!("{origin}: {text}"))
}

/// An error of an exec plugin or a token.
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
            format!("the exec plugin {plugin} wrote something that is not an ExecCredential")
        }
        AuthError::ExecPluginFailed => {
            format!("the exec plugin {plugin} wrote an ExecCredential without a status")
        }
        AuthError::UnrefreshableTokenResponse => {
            format!("the exec plugin {plugin} gave no token this time")
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            format!("the exec plugin {plugin} wrote an expirationTimestamp that is not a time")
        }
        AuthError::MissingCommand => "exec has no command".to_owned(),
        AuthError::InvalidBasicAuth(_) => {
            "the user name or password cannot stand in a header".to_owned()
        }
        AuthError::InvalidBearerToken(_) => {
            "the token cannot stand in a header; look for line breaks in it".to_owned()
        }
        AuthError::ReadTokenFile(failure, path) => format!("{}: {failure}", path.display()),
        AuthError::ExecMissingClusterInfo => {
            format!("the exec plugin {plugin} wants cluster info, and there is none")
        }
        _ => format!("{plugin} cannot be used as an auth provider"),
    }
}

/// An error of a kubeconfig.
pub(super) fn kubeconfig_text(failure: &KubeconfigError) -> String {
    match failure {
        KubeconfigError::CurrentContextNotSet => {
            "it has no current-context, and no context is configured".to_owned()
        }
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::ReadConfig(failure, path) => format!("{}: {failure}", path.display()),
        KubeconfigError::Parse(failure) => match failure.location() {
            // The library's own text quotes the lines around, which may hold a token.
            Some(at) => {
                format!("it is not a kubeconfig: line {}, column {}", at.line(), at.column())
            }
            None => "it is not a kubeconfig".to_owned(),
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
        KubeconfigError::FindPath => "there is no home directory to look in".to_owned(),
    }
}

fn data_text(failure: &LoadDataError) -> String {
    match failure {
        LoadDataError::DecodeBase64(_) => "its data is not base64".to_owned(),
        LoadDataError::ReadFile(failure, path) => format!("{}: {failure}", path.display()),
        LoadDataError::NoBase64DataOrFile => "it is missing".to_owned(),
    }
}
