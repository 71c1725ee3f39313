//! Gateway mode before and after the cluster's settings of certificates and front proxies are
//! known.

use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use weir::server::ListenerKind;
use weir::simulator::{LoggedRequest, Simulator, SimulatorOptions, User};

use crate::client::{Answer, Call, try_send};
use crate::harness::{Proxy, as_gateway};
use crate::wait::eventually;

/// A self-signed certificate.
struct ClientCertificate {
    pem: String,
    key: String,
}

/// Sends a request on a connection with a client certificate.
async fn with_certificate(proxy: &Proxy, certificate: &ClientCertificate, call: &Call) -> Answer {
    let listener = proxy.listeners.iter().find(|one| one.kind == ListenerKind::Tls).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let ca = listener.ca_pem.as_ref().unwrap();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let stream = TcpStream::connect(proxy.address(ListenerKind::Tls)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    Answer::collect(try_send(stream, call).await.unwrap()).await.unwrap()
}

fn forwarded(proxy: &Proxy, path: &str) -> Vec<LoggedRequest> {
    let recent = proxy.upstream.requests().recent();
    recent.into_iter().filter(|seen| seen.path == path).collect()
}

fn claims(call: Call) -> Call {
    call.header("x-remote-user", "admin")
        .header("x-corp-user", "admin")
        .header("x-corp-extra-scope", "all")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_cannot_be_verified_yet_is_refused() {
    // The upstream publishes no settings.
    let users = vec![User::admin("weirs-own", "weir"), User::admin("alices", "alice")];
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    let proxy = Proxy::before(upstream, "weirs-own", as_gateway).await;
    let made = rcgen::generate_simple_self_signed(vec!["jane".to_owned()]).unwrap();
    let jane = ClientCertificate { pem: made.cert.pem(), key: made.signing_key.serialize_pem() };

    // Weir cannot verify a certificate yet, so it forwards nothing on that connection, whatever
    // else the client presents.
    let call = claims(Call::get("/api/v1/nodes/a"));
    for call in [call.clone(), call.header("authorization", "Bearer alices")] {
        let refused = with_certificate(&proxy, &jane, &call).await;
        assert_eq!((refused.status.as_u16(), refused.cache()), (503, ""), "{}", refused.text());
        assert_eq!(refused.headers["retry-after"], "1");
    }
    assert!(forwarded(&proxy, "/api/v1/nodes/a").is_empty());
    // A token identifies its client; the identity headers beside it have no effect.
    let call = claims(Call::get("/api/v1/nodes/b")).header("authorization", "Bearer alices");
    assert_eq!(proxy.call(&call).await.status, 404);
    let seen = forwarded(&proxy, "/api/v1/nodes/b");
    assert_eq!((seen.len(), seen[0].user.as_str()), (1, "alice"));
    assert!(!seen[0].headers.contains_key("x-remote-user"));

    // Then the settings are known.
    let ca = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap().cert.pem();
    let api = proxy.upstream.store();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"namespace": "kube-system", "name": "extension-apiserver-authentication"},
    "data": {
        "client-ca-file": ca, "requestheader-client-ca-file": ca,
        "requestheader-username-headers": r#"["X-Corp-User"]"#,
        "requestheader-group-headers": r#"["X-Corp-Group"]"#,
        "requestheader-extra-headers-prefix": r#"["X-Corp-Extra-"]"#,
    }});
    api.create(map).unwrap();
    let get = Call::get("/api/v1/nodes/c");
    eventually("the settings are read", async || {
        with_certificate(&proxy, &jane, &get).await.status == 401
    })
    .await;
    let call = claims(Call::get("/api/v1/nodes/d")).header("authorization", "Bearer alices");
    assert_eq!(proxy.call(&call).await.status, 404);
    let seen = forwarded(&proxy, "/api/v1/nodes/d");
    let is_identity_header =
        |name: &str| name.starts_with("x-remote") || name.starts_with("x-corp");
    assert!(
        !seen[0].headers.keys().any(|name| is_identity_header(name.as_str())),
        "{:?}",
        seen[0].headers
    );
    for name in ["X-Corp-User", "x-corp-extra-scope"] {
        let call = call.clone().header("connection", &format!("close, {name}"));
        assert_eq!(proxy.call(&call).await.status, 400, "{name}");
    }
}
