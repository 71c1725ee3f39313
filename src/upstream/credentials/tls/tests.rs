//! Tests of the TLS configuration of a kubeconfig.

use super::*;
use crate::upstream::testing::Ca;

/// Returns a configuration with a client certificate in its fields.
fn config(fields: &serde_json::Value) -> Config {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let ca = CertificateDer::from_pem_slice(Ca::new().pem.as_bytes()).unwrap();
    let mut config = Config::new("https://192.0.2.1".parse().unwrap());
    config.root_cert = Some(vec![ca.to_vec()]);
    config.auth_info = serde_json::from_value(fields.clone()).unwrap();
    config
}

#[test]
fn a_client_certificate_comes_from_data_or_files() {
    let directory = tempfile::tempdir().unwrap();
    let client = Ca::new().client("weir");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let both = file("both.pem", &[&*client.key_pem, &client.certificate_pem].concat());
    let [certificate, key] =
        [&client.certificate_pem, &client.key_pem].map(|pem| STANDARD.encode(pem));
    for fields in [
        serde_json::json!({ "client-certificate-data": certificate, "client-key-data": key }),
        serde_json::json!({ "client-certificate": both, "client-key": both }),
        serde_json::json!({ "client-certificate-data": certificate, "client-key": both }),
    ] {
        let tls = client_config(&config(&fields)).unwrap();
        assert!(tls.client_auth_cert_resolver.has_certs(), "{fields}");
    }
    let none = client_config(&config(&serde_json::json!({ "client-key-data": "" }))).unwrap();
    assert!(!none.client_auth_cert_resolver.has_certs());
}

#[test]
fn a_wrong_client_certificate_is_refused_without_its_content() {
    let client = Ca::new().client("weir");
    let [certificate, key, text] =
        [&*client.certificate_pem, &client.key_pem, "hunter2"].map(|pem| STANDARD.encode(pem));
    for (fields, expected) in [
        (
            serde_json::json!({ "client-certificate-data": certificate }),
            "client-key: it is missing",
        ),
        (serde_json::json!({ "client-key-data": key }), "client-certificate: it is missing"),
        (
            serde_json::json!({ "client-certificate-data": "!", "client-key-data": key }),
            "client-certificate: its data is not base64",
        ),
        (
            serde_json::json!({ "client-certificate-data": text, "client-key-data": key }),
            "client-certificate: it is not PEM",
        ),
        (
            serde_json::json!({ "client-certificate-data": certificate, "client-key-data": text }),
            "client-key: it has no unencrypted key in PEM",
        ),
        (
            serde_json::json!({ "client-certificate": "/gone", "client-key-data": key }),
            "client-certificate: /gone: No such file",
        ),
    ] {
        let problem = client_config(&config(&fields)).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}
