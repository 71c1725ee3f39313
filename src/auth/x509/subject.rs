//! The user whom a certificate's subject names (apiserver `CommonNameUserConversion`).

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certificate::X509Certificate;

use crate::auth::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

/// Why a subject names nobody, though it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubjectError {
    /// A text in it is in no encoding that it may be in.
    #[error("a text in its subject cannot be read")]
    Text,
    /// More than one uid, or an empty one.
    #[error("its subject must have one uid that is not empty, or none")]
    Uid,
}

/// The user; `None` for a subject without a common name, which counts as no certificate at all.
pub(crate) fn user(leaf: &X509Certificate<'_>) -> Result<Option<User>, SubjectError> {
    let (mut name, mut uids, mut groups) = (String::new(), Vec::new(), Vec::new());
    for attribute in leaf.subject().iter_attributes() {
        // Each is read, since Go refuses the whole certificate for one that it cannot.
        let value = text(attribute.attr_value())?;
        match attribute.attr_type().as_bytes() {
            // The last one counts, as in Go.
            COMMON_NAME => name = value,
            ORGANIZATION => groups.push(value),
            UID => uids.push(value),
            _ => {}
        }
    }
    if name.is_empty() {
        return Ok(None);
    }
    let uid = match uids.as_slice() {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        _ => return Err(SubjectError::Uid),
    };
    let digest = digest::digest(&digest::SHA256, leaf.as_raw());
    let id = digest
        .as_ref()
        .iter()
        .fold("X509SHA256=".to_owned(), |id, byte| id + &format!("{byte:02x}"));
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]);
    add_authenticated(&name, &mut groups);
    Ok(Some(User::new(name, uid, groups, extra)))
}

/// The common name; empty for none.
pub(crate) fn common_name(leaf: &X509Certificate<'_>) -> Result<String, SubjectError> {
    let last = leaf.subject().iter_common_name().last();
    last.map_or(Ok(String::new()), |attribute| text(attribute.attr_value()))
}

/// Adds the group of everybody who is somebody (apiserver `AuthenticatedGroupAdder`).
pub(crate) fn add_authenticated(name: &str, groups: &mut Vec<String>) {
    let told = groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if name != ANONYMOUS && !told {
        groups.push(AUTHENTICATED.to_owned());
    }
}

/// A text in one of the encodings that Go reads (`parseASN1String`). Go takes T.61 as it is; here only as ASCII.
fn text(value: &Any<'_>) -> Result<String, SubjectError> {
    let bytes = value.data;
    let all = |allowed: fn(&u8) -> bool| bytes.iter().all(allowed);
    let fits = value.header.is_universal()
        && match value.header.tag() {
            Tag::Utf8String | Tag::BmpString => true,
            Tag::PrintableString => all(is_printable),
            Tag::Ia5String | Tag::T61String => all(u8::is_ascii),
            Tag::NumericString => all(|byte| byte.is_ascii_digit() || *byte == b' '),
            _ => false,
        };
    if !fits {
        return Err(SubjectError::Text);
    }
    if value.header.tag() == Tag::BmpString {
        return wide(bytes).ok_or(SubjectError::Text);
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| SubjectError::Text)
}

/// UTF-16, big-endian; one NUL at its end is left away, as Go does.
fn wide(bytes: &[u8]) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    let units = units.strip_suffix(&[0]).unwrap_or(&units);
    rest.is_empty().then(|| String::from_utf16(units).ok()).flatten()
}

/// As Go's `isPrintable`, which also takes `*` and `&`.
fn is_printable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte)
}

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2 (apimachinery `asn1.X509UID`)
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];
/// Names the credential in audit logs and to admission (apiserver `user.CredentialIDKey`).
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
