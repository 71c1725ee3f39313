//! Messages for kube-client's errors. Its own messages may contain lines of the kubeconfig.

use kube_client::config::{KubeconfigError, LoadDataError};

/// Returns the message of an error of a kubeconfig.
pub(super) fn kubeconfig_text(failure: &KubeconfigError) -> String {
    match failure {
        KubeconfigError::CurrentContextNotSet => {
            "it has no current-context, and --context is not given".to_owned()
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
