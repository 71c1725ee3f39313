//! Bearer tokens as they stand in requests, read exactly as kube-apiserver does (`request/bearertoken`, `request/websocket`): the first
//! `Authorization`, or else, where a WebSocket is asked for, a sub-protocol that carries a token (browsers can set no other header).
//!
//! What two readers might take differently is never guessed: it is [`Bearer::Ambiguous`], the request is forwarded as it came, and the upstream
//! judges. So it is where the answer would not be the same even for the same user (a Warning about an extra space), and where a
//! TokenReview would judge another token than the one shown (it splits and trims the token once more).

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};
use memchr::memchr;

/// A token. Its `Debug` form does not show it. Nothing is copied to read it from a header; a clone is a copy of the token alone, so that
/// whoever keeps one keeps nothing else of what the connection has read.
pub struct BearerToken(Text);

/// Where a token stands. UTF-8 in any case.
enum Text {
    /// In the value of a request's header.
    Header(HeaderValue, Range<usize>),
    /// By itself.
    Own(String),
}

/// What a request shows in place of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// No token: nothing, another scheme, or nothing after the scheme. kube-apiserver takes it as a request without a credential.
    None,
    /// One token.
    Token(BearerToken),
    /// A token that cannot be one: 401.
    Malformed,
    /// What only the upstream can tell; the request is to be forwarded as it is.
    Ambiguous,
}

impl BearerToken {
    /// What a request shows.
    pub fn from_headers(headers: &HeaderMap) -> Bearer {
        let header = from_authorization(headers);
        let protocol = from_protocols(headers);
        match (header, protocol) {
            (header, Bearer::None) => header,
            (Bearer::None, protocol) => protocol,
            // The second counts only if the first is wrong, which nobody here knows yet.
            _ => Bearer::Ambiguous,
        }
    }

    /// Whether the token that a request shows stands among the sub-protocols of a WebSocket: the upstream takes it out of them.
    pub fn is_in_protocols(headers: &HeaderMap) -> bool {
        from_authorization(headers) == Bearer::None
            && matches!(from_protocols(headers), Bearer::Token(_))
    }

    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        match &self.0 {
            Text::Header(..) => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Own(text) => text,
        }
    }

    /// The bytes of its text, at less cost.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Header(value, span) => value.as_bytes().get(span.clone()).unwrap_or_default(),
            Text::Own(text) => text.as_bytes(),
        }
    }
}

/// Whether a token is the one that a TokenReview would look at. It puts the token into a header and reads that: a space ends it, white
/// space at its end is cut off.
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

/// Of the first `Authorization`, even if it is empty and a second one is not.
fn from_authorization(headers: &HeaderMap) -> Bearer {
    let Some(value) = headers.get(AUTHORIZATION) else { return Bearer::None };
    let text = lossy(value);
    let Some((scheme, rest)) = text.trim().split_once(' ') else { return Bearer::None };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Bearer::None;
    }
    let token = memchr(b' ', rest.as_bytes()).and_then(|end| rest.get(..end)).unwrap_or(rest);
    match &text {
        // No credential, but the upstream warns of it in its answer.
        _ if token.is_empty() => Bearer::Ambiguous,
        // JSON cannot carry it to a review.
        Cow::Owned(_) => Bearer::Ambiguous,
        Cow::Borrowed(_) if !is_reviewed_unchanged(token) => Bearer::Ambiguous,
        Cow::Borrowed(text) => {
            let start = text.len() - text.trim_start().len() + scheme.len() + 1;
            let span = start..start + token.len();
            Bearer::Token(BearerToken(Text::Header(value.clone(), span)))
        }
    }
}

/// As Go's strings take it. Each request comes by here, and the library's way for text that may be none takes five times as long.
fn lossy(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes();
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Of the sub-protocols of a WebSocket.
fn from_protocols(headers: &HeaderMap) -> Bearer {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !is_websocket(headers) {
        return Bearer::None;
    }
    let mut token = None;
    let mut others = 0_usize;
    for line in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let line = String::from_utf8_lossy(line.as_bytes());
        for protocol in line.split(',') {
            let Some(encoded) = protocol.trim().strip_prefix(PROTOCOL_TOKEN_PREFIX) else {
                // An empty one counts, too.
                others += 1;
                continue;
            };
            let decoded =
                RAW_URL.decode(encoded).ok().and_then(|token| String::from_utf8(token).ok());
            match (decoded, &token) {
                (Some(decoded), None) => token = Some(decoded),
                // Not one, or one more.
                _ => return Bearer::Malformed,
            }
        }
    }
    match token {
        None => Bearer::None,
        Some(token) if token.is_empty() => Bearer::None,
        // There must be one to answer with.
        Some(_) if others == 0 => Bearer::Malformed,
        Some(token) if is_reviewed_unchanged(&token) => Bearer::Token(token.into()),
        Some(_) => Bearer::Ambiguous,
    }
}

/// Whether kube-apiserver's authentication takes it for a WebSocket's beginning. It is easily content: any `Connection` that has the word
/// in it, even within another, will do.
fn is_websocket(headers: &HeaderMap) -> bool {
    let named = headers.get(UPGRADE).is_some_and(|value| {
        equals_folded(&String::from_utf8_lossy(value.as_bytes()), "websocket")
    });
    named
        && headers.get_all(CONNECTION).iter().any(|value| {
            let value = value.as_bytes().to_ascii_lowercase();
            value.windows(UPGRADE.as_str().len()).any(|part| part == UPGRADE.as_str().as_bytes())
        })
}

/// Go's `strings.EqualFold` for a lower-case ASCII word: two letters of Unicode fold to ASCII ones.
fn equals_folded(text: &str, word: &str) -> bool {
    let folded = text.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    });
    folded.eq(word.chars())
}

/// What a sub-protocol that carries a bearer token begins with.
pub(crate) const PROTOCOL_TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Go's `base64.RawURLEncoding`: no padding, and what is over in the last letter is not looked at.
const RAW_URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);
