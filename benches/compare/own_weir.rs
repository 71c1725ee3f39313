//! The Weir of a run's own: a gateway with TLS before the upstream, that can be started afresh.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use serde_json::json;

use crate::child::Place;
use crate::server::{Server, WEIR};
use crate::weir_process::{Weir, free_address};

/// A certificate for the loopback address and its key, which all servers of a run's own show.
pub(crate) struct Identity {
    /// PEM.
    pub(crate) certificate: String,
    /// PEM.
    pub(crate) key: String,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.expect("a certificate");
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    /// As files, for servers that want them.
    pub(crate) fn write(&self, directory: &Path) {
        std::fs::write(directory.join("tls.crt"), &self.certificate).expect("a file");
        std::fs::write(directory.join("tls.key"), &self.key).expect("a file");
    }
}

pub(crate) struct OwnWeir {
    kubeconfig: String,
    sections: serde_json::Value,
    address: SocketAddr,
    process: Option<Weir>,
}

impl OwnWeir {
    /// For whoever has a token of the upstream's; an identity's files are in the directory.
    pub(crate) fn new(upstream: &Place, token: &str, directory: &Path) -> Self {
        let ca = base64::engine::general_purpose::STANDARD.encode(&upstream.ca);
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "upstream",
            "clusters": [{"name": "upstream",
                "cluster": {"server": upstream.url, "certificate-authority-data": ca}}],
            "users": [{"name": "upstream", "user": {"token": token}}],
            "contexts": [{"name": "upstream", "context": {"cluster": "upstream", "user": "upstream"}}]});
        let address = free_address();
        let certificate = directory.join("tls.crt");
        let listener = json!({"listen": format!("https://{address}"), "certificate": {
            "certificateFile": certificate, "privateKeyFile": directory.join("tls.key"), "caFile": certificate}});
        let sections =
            json!({"server": {"listeners": [listener]}, "authentication": {"mode": "gateway"}});
        Self { kubeconfig: kubeconfig.to_string(), sections, address, process: None }
    }

    pub(crate) fn server(&self, identity: &Identity, token: &str) -> Server {
        Server::new(WEIR, &format!("https://{}", self.address), &identity.certificate, token)
    }

    /// Ends the old process, if there is one; the new one's id.
    pub(crate) async fn start(&mut self) -> u32 {
        self.process = None;
        let process = Weir::start_at(self.address, &self.kubeconfig, self.sections.clone()).await;
        self.process.insert(process).pid()
    }
}
