//! The certificates of a world: its CAs, those of its clients, and Weir's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;

/// A CA.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, PEM.
#[derive(Clone)]
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A client's, for so long from now.
    pub(crate) fn client(&self, name: &str, group: &str, good: Duration) -> Certificate {
        let mut params = client(name, group);
        params.not_before = (SystemTime::now() - Duration::from_secs(60)).into();
        params.not_after = (SystemTime::now() + good).into();
        self.sign(params)
    }

    /// A client's, whose time is over.
    pub(crate) fn expired(&self, name: &str, group: &str) -> Certificate {
        let mut params = client(name, group);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.sign(params)
    }

    fn server(&self) -> Certificate {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        self.sign(CertificateParams::new(names).unwrap())
    }

    fn sign(&self, params: CertificateParams) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.0).unwrap().pem();
        Certificate { chain, key: key.serialize_pem() }
    }
}

fn client(name: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// All CAs, and a directory with the files that Weir and the upstream read.
pub(crate) struct Pki {
    /// Of users.
    pub(crate) clients: Authority,
    /// Of front proxies; the upstream believes those named [`PROXY`].
    pub(crate) proxies: Authority,
    /// Which nobody believes.
    pub(crate) others: Authority,
    /// Of Weir's listener.
    pub(crate) weir: Authority,
    /// All private keys but the CAs', PEM; nothing may ever tell them.
    keys: Mutex<Vec<String>>,
    dir: TempDir,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let pki = Self {
            clients: Authority::new("clients"),
            proxies: Authority::new("proxies"),
            others: Authority::new("others"),
            weir: Authority::new("weir"),
            keys: Mutex::default(),
            dir: tempfile::tempdir().unwrap(),
        };
        pki.write("clients.crt", &pki.clients.pem());
        pki.write("proxies.crt", &pki.proxies.pem());
        pki.write("weir-ca.crt", &pki.weir.pem());
        let (server, proxy) = (pki.weir.server(), pki.proxies.client(PROXY, "", LONG));
        for (name, certificate) in [("weir", server), ("proxy", proxy)] {
            pki.write(&format!("{name}.crt"), &certificate.chain);
            pki.write(&format!("{name}.key"), &certificate.key);
            pki.keys.lock().push(certificate.key);
        }
        pki
    }

    /// That of a user of the cluster, for so long from now.
    pub(crate) fn client(&self, name: &str, group: &str, good: Duration) -> Certificate {
        let certificate = self.clients.client(name, group, good);
        self.remember(&certificate);
        certificate
    }

    /// Nothing may tell its key.
    pub(crate) fn remember(&self, certificate: &Certificate) {
        self.keys.lock().push(certificate.key.clone());
    }

    /// All private keys so far.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.lock().clone()
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file beside the others.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// The common name of the front proxies.
pub(crate) const PROXY: &str = "front-proxy-client";
/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 3600);
