//! Shard selectors (`docs/semantics.md` §7.4), in the form in which clients write them. It shares
//! no code with `api::selector`, which the tests compare with it. All errors of the upstream's CEL
//! parser are one here.

use std::fmt;

use super::object::Object;
use super::status::ApiError;

/// The shard selector of a request.
#[derive(Clone, Debug)]
pub(super) struct ShardSelector {
    path: &'static str,
    /// The bounds of the ranges, as they were written.
    ranges: Vec<[String; 2]>,
}

impl ShardSelector {
    /// Parses the parameter. The error is a 500, as the upstream's is.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let refused = || ApiError::new(500, "", "invalid shard selector: CEL parse error");
        let text: String = text.split_whitespace().collect();
        let mut selector = Self { path: "", ranges: Vec::new() };
        for call in text.split("||") {
            let inner = call.strip_prefix("shardRange(").and_then(|rest| rest.strip_suffix(')'));
            let inner = inner.ok_or_else(refused)?;
            let [path, start, end] = *inner.split(',').collect::<Vec<_>>() else {
                return Err(refused());
            };
            let path = PATHS.into_iter().find(|known| *known == path).ok_or_else(refused)?;
            let bounds = [bound(start).ok_or_else(refused)?, bound(end).ok_or_else(refused)?];
            let is_of_same = selector.path.is_empty() || selector.path == path;
            if !is_of_same || !is_less(&bounds[0], &bounds[1]) {
                return Err(refused());
            }
            selector.path = path;
            selector.ranges.push(bounds);
        }
        Ok(selector)
    }

    /// Returns whether the hash of the object's field is in a range.
    pub(super) fn matches(&self, object: &Object) -> bool {
        let value = if self.path == PATHS[0] { &object.uid } else { &object.namespace };
        let mut hash = 14_695_981_039_346_656_037_u64;
        for byte in value.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
        }
        let hash = format!("0x{hash:016x}");
        self.ranges.iter().any(|[start, end]| !is_less(&hash, start) && is_less(&hash, end))
    }
}

impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path;
        let calls = self
            .ranges
            .iter()
            .map(|[start, end]| format!("shardRange({path}, '{start}', '{end}')"));
        f.write_str(&calls.collect::<Vec<_>>().join(" || "))
    }
}

/// Compares two bounds as the upstream does (`sharding.HexLess`).
fn is_less(one: &str, other: &str) -> bool {
    (one.len(), one) < (other.len(), other)
}

fn bound(literal: &str) -> Option<String> {
    let text = literal.strip_prefix('\'')?.strip_suffix('\'')?;
    let digits = text.strip_prefix("0x")?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_valid = digits.len() == 16 && digits.bytes().all(is_digit);
    (is_valid || text == "0x10000000000000000").then(|| text.to_owned())
}

const PATHS: [&str; 2] = ["object.metadata.uid", "object.metadata.namespace"];
