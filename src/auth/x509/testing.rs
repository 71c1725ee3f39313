//! CAs and client certificates for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName,
    DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SigningKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::asn1_rs::{Any, FromDer};

/// 2026-01-01 and 2100-01-01 in seconds since 1970. Certificates are valid between the two unless a
/// test sets other times.
pub(crate) const START: i64 = 1_767_225_600;
pub(crate) const END: i64 = 4_102_444_800;

/// A CA with its private key.
pub(crate) struct TestCa {
    pub(crate) issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A client's chain and private key.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

pub(crate) fn ca_params(name: &str) -> CertificateParams {
    let mut params = params(&[(DnType::CommonName, name.into())], START, END);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Returns the parameters of a certificate for a subject, valid between two times in seconds since
/// 1970.
pub(crate) fn params(subject: &[(DnType, DnValue)], from: i64, to: i64) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), value.clone());
    }
    let time = |seconds: i64| {
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds.unsigned_abs())
    };
    (params.not_before, params.not_after) = (time(from), time(to));
    params
}

/// Returns the parameters of a valid client certificate for a user in the group `dev`.
pub(crate) fn user_params(name: &str) -> CertificateParams {
    let subject = [(DnType::CommonName, name.into()), (DnType::OrganizationName, "dev".into())];
    let mut params = params(&subject, START, END);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl TestCa {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_params(ca_params(name))
    }

    pub(crate) fn with_params(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns an intermediate CA signed by this CA.
    pub(crate) fn intermediate(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::signed_by(params, key, &self.issuer).unwrap() }
    }

    pub(crate) fn sign(&self, params: &CertificateParams) -> Client {
        let key = KeyPair::generate().unwrap();
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let certificate = params.signed_by(&key, issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Client { chain: vec![certificate.der().clone()], key }
    }

    /// Signs a certificate of version 1, without extensions. rcgen cannot write one, so this
    /// rewrites a certificate of version 3.
    pub(crate) fn sign_version_1(&self, params: &CertificateParams) -> Client {
        let Client { chain, key } = self.sign(params);
        let (_, outer) = Any::from_der(&chain[0]).unwrap();
        let (rest, signed) = Any::from_der(outer.data).unwrap();
        let (_, algorithm) = Any::from_der(rest).unwrap();
        let (mut parts, mut rest) = (Vec::new(), signed.data);
        while !rest.is_empty() {
            let (after, part) = Any::from_der(rest).unwrap();
            if part.header.is_universal() {
                parts.extend_from_slice(&rest[..rest.len() - after.len()]);
            }
            rest = after;
        }
        let signed = sequence(0x30, &parts);
        let mut signature = vec![0];
        signature.extend(self.issuer.key().sign(&signed).unwrap());
        let certificate =
            [signed, sequence(0x30, algorithm.data), sequence(0x03, &signature)].concat();
        Client { chain: vec![CertificateDer::from(sequence(0x30, &certificate))], key }
    }

    /// Returns a client whose certificate is valid when the test runs.
    pub(crate) fn user(&self, name: &str) -> Client {
        self.sign(&user_params(name))
    }
}

fn sequence(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = match content.len() {
        0..128 => vec![tag, length[1]],
        128..256 => vec![tag, 0x81, length[1]],
        _ => vec![tag, 0x82, length[0], length[1]],
    };
    [&head, content].concat()
}

/// Returns the type of the uid attribute in a subject.
pub(crate) fn uid() -> DnType {
    DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2])
}

/// Returns a critical extension that no verifier knows.
pub(crate) fn unknown_critical() -> CustomExtension {
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    extension
}
