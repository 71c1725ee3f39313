//! The certificates of a test world: its CAs, those of its clients, and Weir's own.

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

    /// Issues a client certificate that is valid for `lifetime` from now.
    pub(crate) fn client(&self, name: &str, group: &str, good: Duration) -> Certificate {
        let mut params = client(name, group);
        params.not_before = (SystemTime::now() - Duration::from_secs(60)).into();
        params.not_after = (SystemTime::now() + good).into();
        self.sign(params)
    }

    /// Issues a client certificate that has expired.
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
    /// The CA of users.
    pub(crate) clients: Authority,
    /// The CA of front proxies; the upstream trusts those named [`PROXY`].
    pub(crate) proxies: Authority,
    /// A CA that no server trusts.
    pub(crate) others: Authority,
    /// The CA of Weir's listener.
    pub(crate) weir: Authority,
    /// All private keys but the CAs', PEM; no output may contain one.
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

    /// Issues a certificate of a user of the cluster, valid for `lifetime` from now.
    pub(crate) fn client(&self, name: &str, group: &str, good: Duration) -> Certificate {
        let certificate = self.clients.client(name, group, good);
        self.remember(&certificate);
        certificate
    }

    /// Adds the key to the secrets that no output may contain.
    pub(crate) fn remember(&self, certificate: &Certificate) {
        self.keys.lock().push(certificate.key.clone());
    }

    /// Returns all private keys so far.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.lock().clone()
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file beside the others.
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
