//! The CAs that client certificates must chain to, and the rules for front proxies: the cluster's
//! own settings for authentication, or files that replace them.
//!
//! Every API server publishes its settings in the config map
//! `kube-system/extension-apiserver-authentication`, for servers that receive requests on its
//! behalf, as Weir does ([`config_map`]). A part for which the configuration names a file is read
//! from that file instead ([`ca_file`]). The names of the cluster's own front-proxy headers are
//! read in any case, because clients must not send them ([`proxy_headers`]). Both sources are read
//! periodically ([`reloader`]). If new content cannot be used, the old one stays in use, and one
//! warning is logged.
//!
//! While a part is not known yet, every certificate is [`CertificateIdentity::Unknown`]: upstream
//! decides both whether the certificate is valid and whether its peer is a front proxy, in this
//! order. Neither status 401 nor an anonymous request would be correct.

mod ca_file;
pub(crate) mod config_map;
mod proxy_headers;
mod reloader;
mod setting;
mod snapshot;
mod store;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use proxy_headers::ProxyHeaderNames;
pub use proxy_headers::ProxyHeaders;
pub(crate) use reloader::Reloader;
#[cfg(test)]
pub(crate) use setting::Setting;
pub(crate) use snapshot::{CertificateIdentity, CertificateVerdict, TrustSnapshot};
pub(crate) use store::TrustStore;
