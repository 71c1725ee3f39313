//! Client certificates, and the front proxies that authenticate by theirs. They are verified for
//! each request, since a connection may outlive its certificate.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use http::HeaderMap;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::user::{Identity, extra_fields, values};
use crate::options::ClientCertificates;

/// The CAs of client certificates.
#[derive(Debug)]
pub(crate) struct ClientCas {
    users: Arc<dyn ClientCertVerifier>,
    front_proxies: Option<Arc<dyn ClientCertVerifier>>,
    allowed_names: Vec<String>,
}

impl ClientCas {
    /// Parses the CAs.
    pub(crate) fn new(given: &ClientCertificates) -> io::Result<Self> {
        let front_proxies = given.request_header_ca.as_ref();
        Ok(Self {
            users: verifier(&given.ca)?,
            front_proxies: front_proxies.map(|pem| verifier(pem)).transpose()?,
            allowed_names: given.request_header_allowed_names.clone(),
        })
    }

    /// Returns the user of a request with these certificates; `None` if they are not valid.
    pub(super) fn user(
        &self,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Option<Identity> {
        let (leaf, rest) = chain.split_first()?;
        let subject = Subject::from_certificate(leaf)?;
        let valid = |verifier: &Arc<dyn ClientCertVerifier>| {
            verifier.verify_client_cert(leaf, rest, UnixTime::now()).is_ok()
        };
        let named = self.allowed_names.is_empty() || self.allowed_names.contains(&subject.name);
        if named && self.front_proxies.as_ref().is_some_and(valid) {
            let user = user_of_front_proxy(headers);
            if user.is_some() {
                return user;
            }
        }
        if !valid(&self.users) || subject.name.is_empty() {
            return None;
        }
        let id = format!("X509SHA256={}", hex_digest(leaf));
        let key = "authentication.kubernetes.io/credential-id".to_owned();
        Some(Identity {
            name: subject.name,
            uid: subject.uid,
            groups: subject.groups,
            extra: BTreeMap::from([(key, vec![id])]),
            rules: Vec::new(),
        })
    }
}

/// Returns the user of a front proxy's headers (the names that `bootstrap` publishes).
fn user_of_front_proxy(headers: &HeaderMap) -> Option<Identity> {
    let values = |name: &str| values(headers, name);
    let name = values("x-remote-user").into_iter().next().filter(|name| !name.is_empty())?;
    let extra = extra_fields(headers, "x-remote-extra-");
    let uid = values("x-remote-uid").into_iter().next().unwrap_or_default();
    Some(Identity { name, uid, groups: values("x-remote-group"), extra, rules: Vec::new() })
}

struct Subject {
    name: String,
    uid: String,
    groups: Vec<String>,
}

impl Subject {
    /// Parses the last common name, all organizations, and the uid.
    fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let mut subject = Self { name: String::new(), uid: String::new(), groups: Vec::new() };
        for attribute in parsed.subject().iter_attributes() {
            let Ok(text) = attribute.as_str() else { continue };
            match attribute.attr_type().to_id_string().as_str() {
                "2.5.4.3" => text.clone_into(&mut subject.name),
                "2.5.4.10" => subject.groups.push(text.to_owned()),
                "1.3.6.1.4.1.57683.2" => text.clone_into(&mut subject.uid),
                _ => {}
            }
        }
        Some(subject)
    }
}

fn verifier(pem: &str) -> io::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.build().map_err(io::Error::other)
}

fn hex_digest(certificate: &CertificateDer<'_>) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
