//! Chains and subjects are accepted and refused as by kube-apiserver.

use rcgen::{BasicConstraints, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::chain::CERTIFICATES_MAX;
use super::subject::SubjectError;
use super::testing::{END, START, TestCa, ca_params, params, uid, unknown_critical, user_params};
use super::*;
use crate::auth::user::User;

const NOON: i64 = START + 43_200;

fn bundle(pems: &[String]) -> Bundle {
    Bundle::parse(pems.concat().as_bytes()).unwrap()
}

fn trusts(bundle: &Bundle, chain: &[CertificateDer<'static>], now: i64) -> bool {
    bundle.trusts(&PresentedChain::parse(chain).unwrap(), now)
}

fn user_of(subject: &[(DnType, DnValue)]) -> Result<Option<User>, SubjectError> {
    let client = TestCa::new("ca").sign(&params(subject, START, END));
    user(PresentedChain::parse(&client.chain).unwrap().leaf())
}

#[test]
fn a_chain_is_trusted_while_it_is_valid() {
    let (ca, other) = (TestCa::new("ca"), TestCa::new("ca"));
    let client = ca.sign(&user_params("jane")).chain;
    let roots = bundle(&[other.pem(), ca.pem()]);
    for (now, good) in [
        (START - 1, false),
        (START, true),
        (NOON, true),
        (END, true),
        (END + 1, false),
        (-5, false),
    ] {
        assert_eq!(trusts(&roots, &client, now), good, "{now}");
    }
    let chain = PresentedChain::parse(&client).unwrap();
    assert_eq!(roots.trusted_until(&chain, NOON), END + 1);
    // A CA with the same name but another key is another CA.
    assert!(!trusts(&bundle(&[other.pem()]), &client, NOON));
}

#[test]
fn intermediates_must_be_presented_and_valid() {
    let ca = TestCa::new("ca");
    let mut short = ca_params("between");
    short.not_after = rcgen::date_time_ymd(2026, 6, 1);
    let between = ca.intermediate(short);
    let mut client = between.sign(&user_params("jane")).chain;
    let bundle = bundle(&[ca.pem()]);
    assert!(!trusts(&bundle, &client, NOON));
    client.push(between.issuer.der().clone());
    assert!(trusts(&bundle, &client, NOON));
    let june = 1_780_272_000;
    assert!(!trusts(&bundle, &client, june + 1));
    assert_eq!(bundle.trusted_until(&PresentedChain::parse(&client).unwrap(), NOON), june + 1);
}

#[test]
fn a_root_must_be_valid_and_allowed_to_sign_clients() {
    let mut old = ca_params("ca");
    old.not_after = rcgen::date_time_ymd(2026, 6, 1);
    let ca = TestCa::with_params(old);
    let client = ca.sign(&user_params("jane")).chain;
    let roots = bundle(&[ca.pem()]);
    assert!(trusts(&roots, &client, NOON));
    assert!(!trusts(&roots, &client, 1_780_272_001));

    let mut no_ca = ca_params("ca");
    no_ca.is_ca = IsCa::ExplicitNoCa;
    let mut no_signer = ca_params("ca");
    no_signer.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let mut servers = ca_params("ca");
    servers.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for params in [no_ca, no_signer, servers] {
        let ca = TestCa::with_params(params);
        assert!(!trusts(&bundle(&[ca.pem()]), &ca.sign(&user_params("jane")).chain, NOON));
    }
}

#[test]
fn usages_are_checked_as_in_go() {
    let ca = TestCa::new("ca");
    let bundle = bundle(&[ca.pem()]);
    let with = |usages: Vec<ExtendedKeyUsagePurpose>| {
        let mut params = user_params("jane");
        params.extended_key_usages = usages;
        trusts(&bundle, &ca.sign(&params).chain, NOON)
    };
    assert!(with(vec![]));
    assert!(with(vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]));
    assert!(with(vec![ExtendedKeyUsagePurpose::Any]));
    assert!(!with(vec![ExtendedKeyUsagePurpose::ServerAuth]));
}

#[test]
fn certificates_that_webpki_refuses_are_trusted_directly_below_a_root() {
    let (ca, other) = (TestCa::new("ca"), TestCa::new("ca"));
    let roots = bundle(&[ca.pem()]);
    let mut marked = user_params("jane");
    marked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    assert!(trusts(&roots, &ca.sign(&marked).chain, NOON));
    assert!(!trusts(&roots, &ca.sign(&marked).chain, END + 1));
    assert!(!trusts(&roots, &other.sign(&marked).chain, NOON));
    let mut critical = marked.clone();
    critical.custom_extensions = vec![unknown_critical()];
    assert!(!trusts(&roots, &ca.sign(&critical).chain, NOON));
    let mut server = marked;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    assert!(!trusts(&roots, &ca.sign(&server).chain, NOON));
}

#[test]
fn certificates_of_version_1_are_trusted() {
    let ca = TestCa::new("ca");
    let roots = bundle(&[ca.pem()]);
    let certificates = ca.sign_version_1(&user_params("jane")).chain;
    let chain = PresentedChain::parse(&certificates).unwrap();
    assert_eq!(chain.leaf().version(), x509_parser::x509::X509Version::V1);
    assert!(roots.trusts(&chain, NOON) && !roots.trusts(&chain, START - 1));
    assert_eq!(user(chain.leaf()).unwrap().unwrap().name, "jane");
    assert!(!trusts(&bundle(&[TestCa::new("ca").pem()]), &certificates, NOON));

    let mut forged = certificates[0].to_vec();
    *forged.last_mut().unwrap() ^= 1;
    assert!(!trusts(&roots, &[CertificateDer::from(forged)], NOON));
}

#[test]
fn a_certificate_in_the_bundle_needs_no_signature() {
    let ca = TestCa::new("ca");
    let chain = [ca.issuer.der().clone()];
    assert!(trusts(&bundle(&[ca.pem()]), &chain, NOON));
    assert!(!trusts(&bundle(&[ca.pem()]), &chain, END + 1));
}

#[test]
fn malformed_certificates_are_refused() {
    let client = TestCa::new("ca").user("jane").chain;
    assert!(PresentedChain::parse(&[]).is_none());
    assert!(PresentedChain::parse(&[CertificateDer::from(vec![0x30, 0])]).is_none());
    let mut longer = client[0].to_vec();
    longer.push(0);
    assert!(PresentedChain::parse(&[CertificateDer::from(longer)]).is_none());
    assert!(PresentedChain::parse(&vec![client[0].clone(); CERTIFICATES_MAX + 1]).is_none());

    assert_eq!(Bundle::parse(b"").unwrap_err(), BundleError::Empty);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(Bundle::parse(broken.as_bytes()).unwrap_err(), BundleError::Certificate(1));
}

#[test]
fn a_subject_names_a_user_and_groups() {
    let client = {
        let subject = [
            (DnType::OrganizationName, "dev".into()),
            (DnType::CommonName, DnValue::PrintableString("jane".try_into().unwrap())),
            (uid(), "7".into()),
        ];
        TestCa::new("ca").sign(&params(&subject, START, END))
    };
    let chain = PresentedChain::parse(&client.chain).unwrap();
    let user = user(chain.leaf()).unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
    assert_eq!(user.groups, ["dev", "system:authenticated"]);
    let digest = ::aws_lc_rs::digest::digest(&::aws_lc_rs::digest::SHA256, &client.chain[0]);
    let id = format!(
        "X509SHA256={}",
        digest.as_ref().iter().map(|b| format!("{b:02x}")).collect::<String>()
    );
    assert_eq!(
        user.extra.into_iter().collect::<Vec<_>>(),
        [("authentication.kubernetes.io/credential-id".to_owned(), vec![id])]
    );
}

#[test]
fn all_organizations_are_groups() {
    // rcgen writes one value of each type, so OpenSSL made these (O=a, O=b + O=c, CN=x, CN=jane).
    let pem = include_str!("testdata/organizations.pem");
    let leaf = [CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
    let chain = PresentedChain::parse(&leaf).unwrap();
    let user = user(chain.leaf()).unwrap().unwrap();
    assert_eq!(user.name, "jane", "the last common name is used, as in Go");
    let mut groups = user.groups;
    groups.sort();
    assert_eq!(groups, ["a", "b", "c", "system:authenticated"]);
}

#[test]
fn a_subject_without_a_common_name_has_no_user() {
    assert!(user_of(&[(DnType::OrganizationName, "system:masters".into())]).unwrap().is_none());
    assert!(user_of(&[(DnType::CommonName, "".into()), (uid(), "".into())]).unwrap().is_none());
}

#[test]
fn an_empty_uid_is_an_error() {
    let subject = [(DnType::CommonName, "jane".into()), (uid(), "".into())];
    assert_eq!(user_of(&subject).unwrap_err(), SubjectError::Uid);
}

#[test]
fn strings_are_decoded_as_in_go() {
    let named = |value: DnValue| user_of(&[(DnType::CommonName, value)]);
    let bmp = DnValue::BmpString("j\u{f6}rg".try_into().unwrap());
    assert_eq!(named(bmp).unwrap().unwrap().name, "j\u{f6}rg");
    assert_eq!(named("j\u{f6}rg".into()).unwrap().unwrap().name, "j\u{f6}rg");
    let ia5 = DnValue::Ia5String("a@b".try_into().unwrap());
    assert_eq!(named(ia5).unwrap().unwrap().name, "a@b");
    let universal = DnValue::UniversalString("jane".try_into().unwrap());
    assert_eq!(named(universal).unwrap_err(), SubjectError::Text);
}

#[test]
fn anonymous_is_not_in_the_authenticated_group() {
    let user = user_of(&[(DnType::CommonName, "system:anonymous".into())]).unwrap().unwrap();
    assert!(user.groups.is_empty());
}
