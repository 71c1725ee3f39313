//! The Weir process that a run of this bench starts unless it is given the URL of a running Weir: a
//! gateway with TLS in front of the upstream. It can be restarted.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use serde_json::json;

use crate::child::Endpoint;
use crate::server::{Server, WEIR};
use crate::weir_process::{Weir, free_address};

/// A serving certificate for the loopback address, and its key. All servers that a run starts use
/// it.
pub(crate) struct Identity {
    /// The certificate in PEM.
    pub(crate) certificate: String,
    /// The private key in PEM.
    pub(crate) key: String,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let generated = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let generated = generated.expect("a certificate");
        Self { certificate: generated.cert.pem(), key: generated.signing_key.serialize_pem() }
    }

    /// Writes the certificate to `tls.crt` and the key to `tls.key` in `directory`.
    pub(crate) fn write(&self, directory: &Path) {
        std::fs::write(directory.join("tls.crt"), &self.certificate).expect("a file");
        std::fs::write(directory.join("tls.key"), &self.key).expect("a file");
    }
}

/// A Weir process that can be restarted with the same configuration.
pub(crate) struct OwnWeir {
    /// The kubeconfig of the upstream, as JSON.
    kubeconfig: String,
    /// The sections of Weir's configuration file that are not the defaults.
    sections: serde_json::Value,
    address: SocketAddr,
    process: Option<Weir>,
}

impl OwnWeir {
    /// Prepares the configuration of a Weir that authenticates to `upstream` with `token`, without
    /// starting it. `directory` contains the files of an [`Identity`].
    pub(crate) fn new(upstream: &Endpoint, token: &str, directory: &Path) -> Self {
        let ca = base64::engine::general_purpose::STANDARD.encode(&upstream.ca);
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "upstream",
            "clusters": [{"name": "upstream",
                "cluster": {"server": upstream.url, "certificate-authority-data": ca}}],
            "users": [{"name": "upstream", "user": {"token": token}}],
            "contexts": [{"name": "upstream", "context": {"cluster": "upstream", "user": "upstream"}}]});
        let address = free_address();
        let certificate = directory.join("tls.crt");
        let listener = json!({"listen": format!("https://{address}"), "certificate": {
            "certificateFile": certificate, "privateKeyFile": directory.join("tls.key")}});
        let sections =
            json!({"server": {"listeners": [listener]}, "authentication": {"mode": "gateway"}});
        Self { kubeconfig: kubeconfig.to_string(), sections, address, process: None }
    }

    /// Returns this Weir as a measured server, to which the clients authenticate with `token`.
    pub(crate) fn server(&self, identity: &Identity, token: &str) -> Server {
        Server::new(WEIR, &format!("https://{}", self.address), &identity.certificate, token)
    }

    /// Kills the previous process, if there is one, and starts a new one with the section `cache`,
    /// unless it is null. Returns the process ID of the new one.
    pub(crate) async fn start(&mut self, cache: serde_json::Value) -> u32 {
        self.process = None;
        let mut sections = self.sections.clone();
        if let (Some(settings), false) = (sections.as_object_mut(), cache.is_null()) {
            settings.insert("cache".to_owned(), cache);
        }
        let process = Weir::start_at(self.address, &self.kubeconfig, sections).await;
        self.process.insert(process).pid()
    }
}
