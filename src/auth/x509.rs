//! Authenticates users by client certificate, as kube-apiserver does (`docs/semantics.md` §12.1;
//! apiserver `request/x509`).
//!
//! The TLS handshake only proves that the client has the private key ([`handshake`]). The chain is
//! verified later, at the time of each request ([`Bundle::trusts`]), because connections outlive
//! certificates, and because a certificate of an unknown CA must end in status 401, not in a TLS
//! error.
//!
//! webpki verifies the chain, one root at a time. Go, which the upstream uses, differs from webpki
//! in some rules, and both must accept the same users. So Weir checks for each root what webpki
//! takes for granted (its validity, whether it may sign, its usages), and `direct` accepts
//! certificates that webpki cannot read. One difference remains: RSA keys below 2048 bits are
//! refused here (`docs/decisions/stricter-certificates.md`).

mod bundle;
mod certificate;
mod chain;
mod direct;
pub mod handshake;
mod root;
mod signature;
mod subject;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use bundle::{Bundle, BundleError};
pub(crate) use chain::PresentedChain;
pub(crate) use subject::{CREDENTIAL_ID, add_authenticated, common_name, user};
