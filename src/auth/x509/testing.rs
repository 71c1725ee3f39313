//! CAs and clients of tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName,
    DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SigningKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::asn1_rs::{Any, FromDer};

/// 2026-01-01 and 2100-01-01, in seconds; certificates are good in between unless a test says otherwise.
pub(crate) const START: i64 = 1_767_225_600;
pub(crate) const END: i64 = 4_102_444_800;

/// A CA.
pub(crate) struct TestCa {
    pub(crate) issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
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

/// For a subject, good from one second to another.
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

/// One that is good, of a user in some groups.
pub(crate) fn of(name: &str) -> CertificateParams {
    let subject = [(DnType::CommonName, name.into()), (DnType::OrganizationName, "dev".into())];
    let mut params = params(&subject, START, END);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

impl TestCa {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(ca_params(name))
    }

    pub(crate) fn with(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// One below this one.
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

    /// The same in version 1, without extensions, which rcgen does not make.
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
        let all = [signed, sequence(0x30, algorithm.data), sequence(0x03, &signature)].concat();
        Client { chain: vec![CertificateDer::from(sequence(0x30, &all))], key }
    }

    /// Of a user who is good now, whenever a test runs.
    pub(crate) fn user(&self, name: &str) -> Client {
        self.sign(&of(name))
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

/// A UID in a subject.
pub(crate) fn uid() -> DnType {
    DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2])
}

/// An extension that nobody knows.
pub(crate) fn unknown_critical() -> CustomExtension {
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    extension
}
