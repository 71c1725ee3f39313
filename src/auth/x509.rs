//! Authenticates users by client certificate, as kube-apiserver does (`docs/semantics.md` §12.1;
//! apiserver `request/x509`).
//!
//! The TLS handshake only proves that the client has the private key ([`handshake`]). The chain is
//! verified later, with each request ([`Bundle::trusts`]), because a certificate may expire while
//! its connection is open, and because a certificate of an unknown CA must result in status 401,
//! not in a TLS error.
//!
//! webpki verifies the chain, against one root at a time. The API server uses Go's verifier, which
//! differs from webpki in some rules, and Weir must accept the same users as the API server.
//! Therefore Weir itself checks what webpki does not check of a root (its validity, whether it may
//! sign, its usages), and `root` accepts three kinds of certificates that webpki refuses. Two
//! differences remain: Weir refuses RSA keys below 2048 bits, and intermediates whose only extended
//! key usage is `any` (`docs/decisions/authentication.md`).

mod bundle;
mod certificate;
mod chain;
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
