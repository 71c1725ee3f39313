//! The kubeconfig for clients of Weir (`--write-kubeconfig`).
//!
//! The file contains no credential. In sidecar mode its token is a placeholder, which Weir drops:
//! without a token kubectl asks for a user name (client-go `clientcmd/client_config.go`,
//! `canIdentifyUser`). In gateway mode it has no user at all: a client adds its own (`kubectl
//! config set-credentials`, `--token`), and a placeholder would be a wrong credential. The file
//! decides where kubectl sends its requests, so it has mode 0600. It is written beside the target
//! and renamed, so that no reader gets a partial file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::config::Mode;
use crate::server::{BoundListener, ListenerKind};

/// Writes the kubeconfig for the first TLS listener, or else the first plain one; kubectl cannot
/// use a Unix socket.
pub fn render(listeners: &[BoundListener], mode: Mode) -> anyhow::Result<String> {
    let of_kind = |kind| listeners.iter().find(|listener| listener.kind == kind);
    let (scheme, listener) = of_kind(ListenerKind::Tls)
        .map(|listener| ("https", listener))
        .or_else(|| of_kind(ListenerKind::Plain).map(|listener| ("http", listener)))
        .context(
            "a kubeconfig needs an https:// or http:// listener; there are only Unix sockets",
        )?;
    let server = format!("{scheme}://{}", reachable(&listener.address));
    let cluster = match &listener.ca_pem {
        Some(pem) => {
            json!({ "server": server, "certificate-authority-data": STANDARD.encode(pem) })
        }
        None => json!({ "server": server }),
    };
    let (context, users) = match mode {
        Mode::Sidecar => (
            json!({ "cluster": NAME, "user": NAME }),
            json!([{ "name": NAME, "user": { "token": PLACEHOLDER } }]),
        ),
        Mode::Gateway => (json!({ "cluster": NAME }), json!([])),
    };
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": NAME, "cluster": cluster }],
        "contexts": [{ "name": NAME, "context": context }],
        "current-context": NAME,
        "users": users,
    });
    serde_saphyr::to_string(&kubeconfig).context("the kubeconfig cannot be written as YAML")
}

/// Returns the address by which clients on this machine reach a listener. Weir does not know the
/// names by which other machines reach it.
fn reachable(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(SocketAddr::V4(every)) if every.ip().is_unspecified() => {
            SocketAddr::from((Ipv4Addr::LOCALHOST, every.port())).to_string()
        }
        Ok(SocketAddr::V6(every)) if every.ip().is_unspecified() => {
            SocketAddr::from((Ipv6Addr::LOCALHOST, every.port())).to_string()
        }
        _ => address.to_owned(),
    }
}

/// Writes a file with mode 0600, atomically.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}.tmp", std::process::id()));
    let aside = Path::new(&aside);
    let result = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(aside)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(aside, path));
    if result.is_err() {
        // The file may not exist; the first error is the one to report.
        drop(fs::remove_file(aside));
    }
    result
}

/// The name of the cluster, the user and the context.
const NAME: &str = "weir";

/// A placeholder whose text shows that it is no credential.
const PLACEHOLDER: &str = "unused";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use kube_client::config::Kubeconfig;

    use super::*;

    fn listener(kind: ListenerKind, address: &str, ca_pem: Option<&str>) -> BoundListener {
        BoundListener { kind, address: address.to_owned(), ca_pem: ca_pem.map(str::to_owned) }
    }

    #[test]
    fn the_kubeconfig_prefers_tls_and_contains_its_ca() {
        let text = render(
            &[
                listener(ListenerKind::Unix, "/run/weir.sock", None),
                listener(ListenerKind::Plain, "127.0.0.1:8001", None),
                listener(ListenerKind::Tls, "[::1]:6440", Some("PEM")),
            ],
            Mode::Sidecar,
        )
        .unwrap();
        let parsed = Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("weir"));
        let cluster = parsed.clusters.into_iter().next().unwrap().cluster.unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:6440"));
        assert_eq!(cluster.certificate_authority_data, Some(STANDARD.encode("PEM")));
    }

    #[test]
    fn without_tls_the_kubeconfig_names_the_plain_listener() {
        let text = render(&[listener(ListenerKind::Plain, "127.0.0.1:8001", None)], Mode::Sidecar)
            .unwrap();
        assert!(text.contains("server: http://127.0.0.1:8001\n"), "{text}");
        assert!(
            render(&[listener(ListenerKind::Unix, "/run/weir.sock", None)], Mode::Sidecar).is_err()
        );
    }

    #[test]
    fn in_gateway_mode_the_kubeconfig_has_no_user() {
        let every = [listener(ListenerKind::Tls, "0.0.0.0:6440", Some("PEM"))];
        let text = render(&every, Mode::Gateway).unwrap();
        let parsed = Kubeconfig::from_yaml(&text).unwrap();
        assert!(parsed.auth_infos.is_empty(), "{text}");
        assert_eq!(parsed.contexts[0].context.as_ref().unwrap().user, None);
        assert!(text.contains("server: https://127.0.0.1:6440\n"), "{text}");
        assert!(!text.contains(PLACEHOLDER), "{text}");
    }

    #[test]
    fn the_file_is_private_and_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        fs::write(&path, "old").unwrap();
        write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left aside");
        assert!(write(&directory.path().join("no/such"), "x").is_err());
    }
}
