//! Reads bearer tokens from requests exactly as kube-apiserver does (`request/bearertoken`,
//! `request/websocket`): from the first `Authorization` header, or for a WebSocket from a
//! sub-protocol that carries a token (browsers cannot set other headers).
//!
//! A header that Weir and upstream could read differently is [`Bearer::Ambiguous`]: the request is
//! forwarded unchanged, and the upstream decides. The same applies if the response would differ
//! even for the same user (a Warning about an extra space), and if a TokenReview would review
//! another token than the one presented (it splits and trims the token once more).

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};
use memchr::memchr;

use crate::auth::token_review::cache::TokenKey;
use crate::auth::token_review::memo::TokenMemo;

/// A token. Its `Debug` output does not show it. Reading it from a header copies nothing. A clone
/// copies only the token, so that keeping a clone does not keep the connection's read buffer alive.
pub struct BearerToken(Text);

/// Where the token is stored. It is always UTF-8.
enum Text {
    /// A part of a header's value; and its keyed hash, if the connection knows it.
    Header(HeaderValue, Range<usize>, Option<TokenKey>),
    /// A string of its own.
    Own(String),
}

/// The bearer token of a request, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// No token: no header, another scheme, or nothing after the scheme. kube-apiserver then treats
    /// the request as one without a credential.
    None,
    /// One token.
    Token(BearerToken),
    /// A malformed token: status 401.
    Malformed,
    /// Only the upstream can decide; the request must be forwarded unchanged.
    Ambiguous,
}

impl BearerToken {
    /// Reads the token from a request's headers. `memo` is that of its connection.
    pub(crate) fn from_headers(headers: &HeaderMap, memo: &TokenMemo) -> Bearer {
        let header = from_authorization(headers, memo);
        let protocol = from_protocols(headers);
        match (header, protocol) {
            (header, Bearer::None) => header,
            (Bearer::None, protocol) => protocol,
            // Upstream uses the second token only if the first is invalid, which is not known here.
            _ => Bearer::Ambiguous,
        }
    }

    /// Returns whether the request's token is among the sub-protocols of a WebSocket. The upstream
    /// removes it from them.
    pub fn is_in_protocols(headers: &HeaderMap) -> bool {
        from_authorization(headers, &TokenMemo::default()) == Bearer::None
            && matches!(from_protocols(headers), Bearer::Token(_))
    }

    /// Returns its keyed hash. The key must always be the same one.
    pub(in crate::auth) fn key(&self, key: &hmac::Key) -> TokenKey {
        match &self.0 {
            Text::Header(_, _, Some(known)) => *known,
            _ => TokenKey::new(key, self.as_bytes()),
        }
    }

    /// Returns the token.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Returns the bytes of the token, which costs less than [`Self::as_str`].
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Header(value, span, _) => value.as_bytes().get(span.clone()).unwrap_or_default(),
            Text::Own(text) => text.as_bytes(),
        }
    }
}

/// Returns whether a TokenReview would review exactly this token. A TokenReview puts the token into
/// a header and parses that: a space ends the token, and white space at its end is removed.
fn is_reviewed_unchanged(token: &str) -> bool {
    memchr(b' ', token.as_bytes()).is_none() && !token.ends_with(char::is_whitespace)
}

impl From<String> for BearerToken {
    fn from(text: String) -> Self {
        Self(Text::Own(text))
    }
}

impl Clone for BearerToken {
    fn clone(&self) -> Self {
        self.as_str().to_owned().into()
    }
}

impl PartialEq for BearerToken {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for BearerToken {}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// Reads the first `Authorization` header, even if it is empty and a second one is not.
fn from_authorization(headers: &HeaderMap, memo: &TokenMemo) -> Bearer {
    let Some(value) = headers.get(AUTHORIZATION) else { return Bearer::None };
    // The bytes after this prefix that were a token once are the same token again.
    let last = value.as_bytes().strip_prefix(USUAL_PREFIX).and_then(|token| memo.key_of(token));
    if last.is_some() {
        let span = USUAL_PREFIX.len()..value.len();
        return Bearer::Token(BearerToken(Text::Header(value.clone(), span, last)));
    }
    let text = String::from_utf8_lossy(value.as_bytes());
    let Some((scheme, rest)) = text.trim().split_once(' ') else { return Bearer::None };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Bearer::None;
    }
    let token = memchr(b' ', rest.as_bytes()).and_then(|end| rest.get(..end)).unwrap_or(rest);
    match &text {
        // No credential, but the upstream adds a Warning to its response.
        _ if token.is_empty() => Bearer::Ambiguous,
        // Not UTF-8, so the JSON of a review cannot contain it.
        Cow::Owned(_) => Bearer::Ambiguous,
        Cow::Borrowed(_) if !is_reviewed_unchanged(token) => Bearer::Ambiguous,
        Cow::Borrowed(text) => {
            let start = text.len() - text.trim_start().len() + scheme.len() + 1;
            let span = start..start + token.len();
            Bearer::Token(BearerToken(Text::Header(value.clone(), span, None)))
        }
    }
}

/// Reads the sub-protocols of a WebSocket.
fn from_protocols(headers: &HeaderMap) -> Bearer {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !is_websocket(headers) {
        return Bearer::None;
    }
    let mut token = None;
    let mut other_protocols = 0_usize;
    for line in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let line = String::from_utf8_lossy(line.as_bytes());
        for protocol in line.split(',') {
            let Some(encoded) = protocol.trim().strip_prefix(PROTOCOL_TOKEN_PREFIX) else {
                // An empty protocol counts too.
                other_protocols += 1;
                continue;
            };
            let decoded =
                RAW_URL.decode(encoded).ok().and_then(|token| String::from_utf8(token).ok());
            match (decoded, &token) {
                (Some(decoded), None) => token = Some(decoded),
                // Not a token, or a second one.
                _ => return Bearer::Malformed,
            }
        }
    }
    match token {
        None => Bearer::None,
        Some(token) if token.is_empty() => Bearer::None,
        // There must be another protocol, which the server can select.
        Some(_) if other_protocols == 0 => Bearer::Malformed,
        Some(token) if is_reviewed_unchanged(&token) => Bearer::Token(token.into()),
        Some(_) => Bearer::Ambiguous,
    }
}

/// Returns whether kube-apiserver's authentication treats the request as a WebSocket handshake. It
/// accepts any `Connection` header that contains the word `upgrade`, even within another word.
fn is_websocket(headers: &HeaderMap) -> bool {
    let is_named = headers.get(UPGRADE).is_some_and(|value| {
        equals_folded(&String::from_utf8_lossy(value.as_bytes()), "websocket")
    });
    is_named
        && headers.get_all(CONNECTION).iter().any(|value| {
            let value = value.as_bytes().to_ascii_lowercase();
            value.windows(UPGRADE.as_str().len()).any(|part| part == UPGRADE.as_str().as_bytes())
        })
}

/// Returns the same as Go's `strings.EqualFold` for a lower-case ASCII word: two non-ASCII letters
/// fold to ASCII ones.
fn equals_folded(text: &str, word: &str) -> bool {
    let folded = text.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    });
    folded.eq(word.chars())
}

const USUAL_PREFIX: &[u8] = b"Bearer ";
/// The prefix of a sub-protocol that carries a bearer token.
pub(crate) const PROTOCOL_TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The same as Go's `base64.RawURLEncoding`: no padding, and trailing bits of the last letter are
/// ignored.
const RAW_URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);
