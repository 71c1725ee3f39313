//! `server`: listeners, their certificates, and limits of clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::config::file::Node;
use crate::config::identity::Mode;
use crate::config::kinds::{Derived, Kind, List, Maybe, Member, Required, Shape};
use crate::config::listen::{ListenAddress, loopback};
use crate::config::network::Network;
use crate::config::reader::Reader;
use crate::config::scalars::{COUNT, Parsed, Plain, Text, Time, WEEK};
use crate::config::section::section;

section! {
    /// Listeners, and the time-outs and limits of their clients.
    pub struct ServerConfig {
        /// One or more of https://, http:// and unix://. While authentication.mode is sidecar,
        /// every client acts with Weir's identity, so only loopback addresses and Unix sockets
        /// (mode 0600) are accepted.
        // TLS, because client-go in a pod insists on it; loopback, because clients are not
        // authenticated.
        restart listeners: Vec<ListenerConfig> = default_listeners(), List(Listener);

        /// Names that a request's Host, and a browser's Origin, may have besides localhost,
        /// loopback addresses and the listeners' own (sidecar). Others are refused, so that a web
        /// page of another site cannot reach the cluster (DNS rebinding).
        live allowed_hosts: Vec<String> = Vec::new(), List(Parsed(host_name));

        /// After SIGTERM, /readyz fails, and everything else goes on for this time (at most 10m),
        /// until no new connection is sent here. The default of a gateway is 10s.
        // A sidecar's clients are the containers beside it, and nothing else sends it a connection.
        // A deleted pod needs seconds to leave the endpoints of its Service on every node.
        live shutdown_delay: Duration = Duration::ZERO,
            Time(Duration::ZERO, Duration::from_secs(600));

        /// After that, open requests end within this time, and watches spread over nine tenths of
        /// it. The rest is aborted. terminationGracePeriodSeconds must be more than both together.
        /// The default of a gateway is 15s; with thousands of watches it needs more.
        // Within the 30 s that the kubelet gives a pod by default.
        live shutdown_timeout: Duration = Duration::from_secs(25), Time(Duration::from_nanos(1), WEEK);

        /// Open connections of one client address; all Unix sockets together count as one address.
        /// In gateway mode a connection counts for its address until a request on it has proved a
        /// user, and then for the user at this address; a user may have eight times as many at all
        /// addresses, and 32 times as many open watches (docs/how-to/load-balancer.md).
        // More than the kubelet, kube-proxy and pods of a node open behind one address (client-go
        // opens one for everything), and few enough that one machine cannot use all file
        // descriptors.
        restart connections_per_address_max: usize = 2048, COUNT;

        /// Open connections of one user at all addresses: more than a service account has whose
        /// pods run on each of ten thousand nodes, and a quarter of what a listener accepts.
        restart connections_per_user_max: usize = 2048 * CONNECTIONS_FACTOR, Derived;

        /// Open watches of one user, and of one address for what has proved no user, in gateway
        /// mode: more than a service account has whose pods watch six resources from each of ten
        /// thousand nodes, and few enough that one user cannot fill the memory with them.
        restart watches_per_user_max: usize = 2048 * WATCHES_FACTOR, Derived;

        /// What responses may hold in memory for clients that have not read them yet, in bytes:
        /// 4,000 pieces of 64 KiB, for more clients than one machine serves at once on slow
        /// networks.
        restart response_bytes_max: usize = 256 << 20, Derived;
    }
}

section! {
    /// A listener as the file has it.
    struct ListenerSection {
        /// The address: https://ADDRESS:PORT, http://ADDRESS:PORT or unix://PATH.
        restart listen: ListenAddress = ListenAddress::Tls(LISTEN), Required(Text);

        /// The certificate of an https:// listener. Without files, Weir generates a CA and a
        /// certificate at every start; `weir serve --write-kubeconfig FILE` writes the CA for
        /// clients.
        restart certificate: Option<CertificateSection> = None, Maybe(Member);

        /// Load balancers that relay TCP and begin each connection with a header of the PROXY
        /// protocol, version 2: the address in it stands for the client. Peers in these networks
        /// must send it, and no others may (docs/how-to/load-balancer.md).
        restart proxy_protocol: Option<ProxyProtocolSection> = None, Maybe(Member);
    }
}

section! {
    /// Where a serving certificate comes from.
    struct CertificateSection {
        /// The certificate that Weir shows, with its chain, in PEM. It is read again when it
        /// changes. `weir serve --write-kubeconfig` makes clients trust the file ca.crt beside it,
        /// if there is one, else the certificate itself.
        restart certificate_file: Option<PathBuf> = None, Maybe(Plain);

        /// The key of certificateFile, in PEM. One of both alone is an error.
        restart private_key_file: Option<PathBuf> = None, Maybe(Plain);

        /// DNS names and IP addresses of a generated certificate, beside localhost and the loopback
        /// addresses.
        restart generated_names: Vec<String> = Vec::new(), List(Parsed(host_name));
    }
}

section! {
    /// The load balancers of a listener.
    struct ProxyProtocolSection {
        /// Networks in CIDR notation, such as 10.0.0.0/8, whose peers send the header.
        restart trusted_networks: Vec<Network> = Vec::new(), Required(List(Parsed(proxy_network)));
    }
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerConfig {
    /// TLS on a TCP address.
    Tls {
        /// The address; port 0 lets the system choose.
        address: SocketAddr,
        /// Where the certificate comes from.
        certificate: CertificateConfig,
        /// The proxies that name their clients.
        proxies: ProxyNetworks,
    },
    /// Plain HTTP on a loopback address.
    Plain {
        /// The address.
        address: SocketAddr,
        /// The proxies that name their clients.
        proxies: ProxyNetworks,
    },
    /// Plain HTTP on a Unix socket, mode 0600.
    Unix {
        /// The socket's path.
        path: PathBuf,
    },
}

/// The networks of the proxies that begin each connection with a header of the PROXY protocol;
/// empty where none does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyNetworks(pub Vec<Network>);

/// Where a serving certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateConfig {
    /// PEM files, read again when their content changes. Clients trust the file ca.crt beside the
    /// certificate, or the chain itself.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A CA and a certificate that Weir generates at start for these DNS names and IP addresses
    /// (besides `localhost` and loopback).
    Generated {
        /// The names and addresses.
        names: Vec<String>,
    },
}

impl ListenerConfig {
    /// Creates a listener; only TLS has the certificate, and a Unix socket has no proxies.
    pub(super) fn new(
        address: ListenAddress,
        certificate: CertificateConfig,
        proxies: ProxyNetworks,
    ) -> Self {
        match address {
            ListenAddress::Tls(address) => Self::Tls { address, certificate, proxies },
            ListenAddress::Plain(address) => Self::Plain { address, proxies },
            ListenAddress::Unix(path) => Self::Unix { path },
        }
    }

    /// Returns the address and protocol.
    pub fn address(&self) -> ListenAddress {
        match self {
            Self::Tls { address, .. } => ListenAddress::Tls(*address),
            Self::Plain { address, .. } => ListenAddress::Plain(*address),
            Self::Unix { path } => ListenAddress::Unix(path.clone()),
        }
    }

    fn proxies(&self) -> &[Network] {
        match self {
            Self::Tls { proxies, .. } | Self::Plain { proxies, .. } => &proxies.0,
            Self::Unix { .. } => &[],
        }
    }
}

/// A [`ListenerSection`] that is a [`ListenerConfig`].
struct Listener;

impl Kind<ListenerConfig> for Listener {
    fn shape(&self) -> Option<Shape> {
        Kind::<ListenerSection>::shape(&Member)
    }

    fn value(&self, node: &Node, reader: &mut Reader<'_>) -> Option<ListenerConfig> {
        let ListenerSection { listen, certificate, proxy_protocol } = Member.value(node, reader)?;
        let mut refuse = |field: &str, message: &str| {
            let place = node.get(field).and_then(Node::place).or(node.place());
            reader.inside(field, |reader| reader.add(place, message));
        };
        if certificate.is_some() && !matches!(listen, ListenAddress::Tls(_)) {
            refuse("certificate", "only an https:// listener has a certificate");
        }
        if proxy_protocol.is_some() && matches!(listen, ListenAddress::Unix(_)) {
            refuse("proxyProtocol", "is for https:// and http:// listeners");
        }
        let networks = proxy_protocol.map(|section| section.trusted_networks);
        if networks.as_ref().is_some_and(Vec::is_empty) {
            let text = "needs at least one network of a load balancer or proxy";
            refuse("proxyProtocol.trustedNetworks", text);
        }
        let CertificateSection { certificate_file, private_key_file, generated_names: names } =
            certificate.unwrap_or_default();
        let certificate = match (certificate_file, private_key_file) {
            (Some(certificate), Some(key)) => {
                if !names.is_empty() {
                    let text = "belongs to a generated certificate; this one comes from files";
                    refuse("certificate.generatedNames", text);
                }
                CertificateConfig::Files { certificate, key }
            }
            (None, None) => CertificateConfig::Generated { names },
            (certificate, _) => {
                let [missing, other] = match certificate {
                    Some(_) => ["privateKeyFile", "certificateFile"],
                    None => ["certificateFile", "privateKeyFile"],
                };
                refuse(&format!("certificate.{missing}"), &format!("is missing beside {other}"));
                return None;
            }
        };
        match listen.check(Mode::from_gateway_flag(reader.is_gateway)) {
            Ok(listen) => {
                let proxies = ProxyNetworks(networks.unwrap_or_default());
                Some(ListenerConfig::new(listen, certificate, proxies))
            }
            Err(message) => {
                let place = node.get("listen").and_then(Node::place);
                reader.inside("listen", |reader| reader.add(place, message));
                None
            }
        }
    }

    fn write(&self, value: &ListenerConfig) -> Value {
        let certificate = match value {
            ListenerConfig::Tls { certificate, .. } => Some(match certificate.clone() {
                CertificateConfig::Files { certificate, key } => CertificateSection {
                    certificate_file: Some(certificate),
                    private_key_file: Some(key),
                    generated_names: Vec::new(),
                },
                CertificateConfig::Generated { names } => {
                    CertificateSection { generated_names: names, ..CertificateSection::default() }
                }
            }),
            ListenerConfig::Plain { .. } | ListenerConfig::Unix { .. } => None,
        };
        let networks = value.proxies().to_vec();
        let proxy_protocol =
            (!networks.is_empty()).then_some(ProxyProtocolSection { trusted_networks: networks });
        let certificate = certificate.filter(|section| *section != CertificateSection::default());
        Member.write(&ListenerSection { listen: value.address(), certificate, proxy_protocol })
    }
}

fn default_listeners() -> Vec<ListenerConfig> {
    let certificate = CertificateConfig::Generated { names: Vec::new() };
    let proxies = ProxyNetworks::default();
    vec![ListenerConfig::Tls { address: LISTEN, certificate, proxies }]
}

fn proxy_network(text: &str) -> Result<Network, String> {
    let network: Network = text.parse()?;
    if network.is_everything() {
        return Err(format!(
            "{network} trusts everybody to name any address; name the networks of the proxies"
        ));
    }
    Ok(network)
}

/// Parses a DNS name or an IP address, without a port.
fn host_name(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_';
    let is_name = !text.is_empty() && text.len() <= HOST_NAME_MAX && text.bytes().all(allowed);
    if is_name || text.parse::<std::net::IpAddr>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err(format!("expected a DNS name or an IP address without a port, not {text:?}"))
    }
}

/// The listener: a port near kube-apiserver's 6443 that leaves 6443 free on the same machine.
pub const LISTEN: SocketAddr = loopback(6440);

/// A gateway goes on for the time that a deleted pod needs to leave the endpoints of its Service,
/// and these to reach every node and load balancer: seconds in most clusters.
pub(super) const GATEWAY_SHUTDOWN_DELAY: Duration = Duration::from_secs(10);
/// With [`GATEWAY_SHUTDOWN_DELAY`] as long as a sidecar's drain, so that both fit the kubelet's 30
/// s.
pub(super) const GATEWAY_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// A user's connections at all addresses, for one at one address.
pub(super) const CONNECTIONS_FACTOR: usize = 8;
/// A user's open watches, for one connection at one address.
pub(super) const WATCHES_FACTOR: usize = 32;
/// RFC 1035.
const HOST_NAME_MAX: usize = 253;
