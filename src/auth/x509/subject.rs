//! Reads the user from a certificate's subject (apiserver `CommonNameUserConversion`).

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certificate::X509Certificate;

use crate::auth::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

/// Why the user cannot be read from a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubjectError {
    /// A string is not in one of the allowed encodings.
    #[error("a string in its subject cannot be decoded")]
    Text,
    /// The subject has more than one uid, or an empty one.
    #[error("its subject has more than one uid, or an empty one")]
    Uid,
}

/// Returns the user. A subject without a common name has none; kube-apiserver then treats the
/// request as if it had no certificate.
pub(crate) fn user(leaf: &X509Certificate<'_>) -> Result<Option<User>, SubjectError> {
    let (mut name, mut uids, mut groups) = (String::new(), Vec::new(), Vec::new());
    for attribute in leaf.subject().iter_attributes() {
        // Every attribute is decoded, because Go rejects the certificate if one cannot be.
        let value = text(attribute.attr_value())?;
        match attribute.attr_type().as_bytes() {
            // The last common name is used, as in Go.
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

/// Returns the common name; empty if there is none.
pub(crate) fn common_name(leaf: &X509Certificate<'_>) -> Result<String, SubjectError> {
    let last = leaf.subject().iter_common_name().last();
    last.map_or(Ok(String::new()), |attribute| text(attribute.attr_value()))
}

/// Adds `system:authenticated` to a user's groups, unless they already say whether the user is
/// authenticated, or the user is anonymous (apiserver `AuthenticatedGroupAdder`).
pub(crate) fn add_authenticated(name: &str, groups: &mut Vec<String>) {
    let is_stated = groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if name != ANONYMOUS && !is_stated {
        groups.push(AUTHENTICATED.to_owned());
    }
}

/// Decodes a string in one of the encodings that Go supports (`parseASN1String`). Go passes T.61
/// through unchanged; here it must be ASCII.
fn text(value: &Any<'_>) -> Result<String, SubjectError> {
    let bytes = value.data;
    let every = |allowed: fn(&u8) -> bool| bytes.iter().all(allowed);
    let fits = value.header.is_universal()
        && match value.header.tag() {
            Tag::Utf8String | Tag::BmpString => true,
            Tag::PrintableString => every(is_printable),
            Tag::Ia5String | Tag::T61String => every(u8::is_ascii),
            Tag::NumericString => every(|byte| byte.is_ascii_digit() || *byte == b' '),
            _ => false,
        };
    if !fits {
        return Err(SubjectError::Text);
    }
    if value.header.tag() == Tag::BmpString {
        return decode_utf16(bytes).ok_or(SubjectError::Text);
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| SubjectError::Text)
}

/// Decodes big-endian UTF-16. One NUL at the end is removed, as in Go.
fn decode_utf16(bytes: &[u8]) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    let units = units.strip_suffix(&[0]).unwrap_or(&units);
    rest.is_empty().then(|| String::from_utf16(units).ok()).flatten()
}

/// Returns the same as Go's `isPrintable`, which also accepts `*` and `&`.
fn is_printable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte)
}

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// 1.3.6.1.4.1.57683.2 (apimachinery `asn1.X509UID`)
const UID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xc2, 0x53, 0x02];
/// The key under which the credential's id is in a user's extra fields, for audit logs and
/// admission (apiserver `user.CredentialIDKey`).
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
