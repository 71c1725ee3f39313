//! Certificates for clients, and requests with them.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::Simulator;

/// A CA.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(super) struct Client {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn client(&self, name: &str, groups: &[&str]) -> Client {
        self.sign(params(name, groups))
    }

    pub(super) fn expired(&self, name: &str) -> Client {
        let mut params = params(name, &[]);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Client {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().der().clone();
        Client { certificate, key: PrivatePkcs8KeyDer::from(key.serialize_der()) }
    }
}

fn params(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// Sends one request over TLS. Returns the status and the JSON of the response.
pub(super) async fn request_over_tls(
    simulator: &Simulator,
    client: Option<&Client>,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, Value) {
    let mut roots = RootCertStore::empty();
    let ca = simulator.ca_pem().unwrap();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some(Client { certificate, key }) => {
            let key = PrivateKeyDer::Pkcs8(key.clone_key());
            config.with_client_auth_cert(vec![certificate.clone()], key).unwrap()
        }
    };
    let stream = tokio::net::TcpStream::connect(simulator.address()).await.unwrap();
    let name = ServerName::IpAddress(simulator.address().ip().into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::builder().method(method.clone()).uri(path).header("host", "x");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if method == Method::POST { Bytes::from("{}") } else { Bytes::new() };
    let response = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}
