//! The header `traceparent` of the W3C Trace Context, version 00
//! (<https://www.w3.org/TR/trace-context/>): the trace of a request, and the span that sent it.
//!
//! Parsing is as strict as the Recommendation: lower-case hexadecimal, no id of zeros, exactly the
//! fields of version 00. Of a later version the same fields are read, and of its flags only
//! `sampled`. Everything else is no context at all.

use std::fmt;
use std::num::NonZero;

/// The id of a trace; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub NonZero<u128>);

/// The id of a span; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub NonZero<u64>);

impl TraceId {
    /// Returns the bytes as OTLP has them.
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.get().to_be_bytes().to_vec()
    }
}

impl SpanId {
    /// Returns the bytes as OTLP has them.
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.get().to_be_bytes().to_vec()
    }
}

/// A `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that sends the request.
    pub span_id: SpanId,
    /// The flags of version 00, of which [`SAMPLED`] is one.
    pub flags: u8,
}

impl TraceContext {
    /// Parses the value of the header. Returns `None` if it is not valid.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (fields, rest) = text.split_at_checked(LENGTH)?;
        let mut fields = fields.split('-');
        let mut hex = |digits: usize| parse_hex(fields.next()?, digits);
        let (version, trace_id, span_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let is_whole = rest.is_empty() || (version > 0 && rest.starts_with('-'));
        if fields.next().is_some() || !is_whole || version == INVALID_VERSION {
            return None;
        }
        let flags = u8::try_from(flags).ok()?;
        Some(Self {
            trace_id: TraceId(NonZero::new(trace_id)?),
            span_id: SpanId(NonZero::new(u64::try_from(span_id).ok()?)?),
            flags: if version == 0 { flags } else { flags & SAMPLED },
        })
    }

    /// Whether the sender may have recorded its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Parses exactly `digits` lower-case hexadecimal digits.
fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hex || text.len() != digits {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

/// The flag that the sender may have recorded its span.
pub const SAMPLED: u8 = 1;
/// The length of the fields of version 00.
const LENGTH: usize = 55;
/// No version is ever `ff`.
const INVALID_VERSION: u128 = 0xff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// The same without the version.
    const FIELDS: &str = "-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(text: &str) -> Option<TraceContext> {
        TraceContext::parse(text.as_bytes())
    }

    #[test]
    fn a_context_of_version_00_is_read() {
        let context = parse(PLAIN).unwrap();
        assert_eq!(context.trace_id.0.get(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(context.span_id.0.get(), 0xb7ad_6b71_6920_3331);
        assert!(context.is_sampled());
        let other = PLAIN.replace("-01", "-02");
        assert!(!parse(&other).unwrap().is_sampled());
        assert_eq!(parse(&other).unwrap().to_string(), other, "the flags of the sender are kept");
    }

    #[test]
    fn the_known_fields_of_a_later_version_are_read() {
        for text in [PLAIN.replacen("00", "cc", 1), format!("01{FIELDS}-what-else")] {
            assert_eq!(parse(&text), parse(PLAIN), "{text}");
        }
        let flags = format!("01{}", FIELDS.replace("-01", "-ff"));
        assert_eq!(parse(&flags).unwrap().flags, SAMPLED, "the others mean something else");
    }

    #[test]
    fn everything_else_is_no_context() {
        for text in [
            String::new(),
            "00".to_owned(),
            PLAIN.trim_end_matches('1').to_owned(),
            format!("{PLAIN} "),
            format!(" {PLAIN}"),
            format!("{PLAIN}-more"),
            format!("01{FIELDS}.more"),
            PLAIN.replacen("00", "ff", 1),
            PLAIN.replacen("00", "0", 1),
            PLAIN.to_uppercase(),
            PLAIN.replace("0af7", "0AF7"),
            PLAIN.replace("0af7", "+af7"),
            PLAIN.replace("-01", "-0g"),
            PLAIN.replace('-', "_"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".to_owned(),
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01".to_owned(),
            PLAIN.replace('7', "ä"),
        ] {
            assert_eq!(parse(&text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_written_context_is_read_again(trace in 1_u128.., span in 1_u64.., flags: u8) {
            let context = TraceContext {
                trace_id: TraceId(NonZero::new(trace).unwrap()),
                span_id: SpanId(NonZero::new(span).unwrap()),
                flags,
            };
            prop_assert_eq!(parse(&context.to_string()), Some(context));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            prop_assert_eq!(TraceContext::parse(&bytes), None);
        }

        /// A context that was read is written as version 00, and reads as the same.
        #[test]
        fn a_changed_context_is_none_or_a_valid_one(place in 0_usize..PLAIN.len(), byte: u8) {
            let mut bytes = PLAIN.as_bytes().to_vec();
            bytes[place] = byte;
            if let Some(context) = TraceContext::parse(&bytes) {
                prop_assert_eq!(parse(&context.to_string()), Some(context));
            }
        }
    }
}
