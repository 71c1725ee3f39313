//! The hops of a request: the Weirs that sent it on.
//!
//! Each Weir adds a value to the header [`VIA`] of all that it sends, its own requests included. A
//! Weir that receives its own value, or the values of [`HOPS_MAX`] others, refuses the request:
//! otherwise an address of an API server that leads back to a Weir would keep requests going round
//! for ever. A value is random and says nothing about its Weir.

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const VIA: HeaderName = HeaderName::from_static("x-weir-via");

/// The value of one Weir.
#[derive(Debug)]
pub(crate) struct Hop(HeaderValue);

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoopError {
    /// This Weir sent it.
    #[error("the request came back to this Weir, to which the address of an API server leads")]
    CameBack,
    /// Too many Weirs sent it on.
    #[error("the request came through more than {HOPS_MAX} Weirs")]
    TooManyHops,
}

impl Hop {
    pub(super) fn new() -> Self {
        let value = HeaderValue::try_from(format!("{:016x}", fastrand::u64(..)));
        Self(value.unwrap_or_else(|_| HeaderValue::from_static("weir")))
    }

    /// Adds this Weir to the hops of a request.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        headers.append(VIA, self.0.clone());
    }

    /// Checks the hops of a request that this Weir received.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), LoopError> {
        let mut count = 0;
        for value in headers.get_all(VIA) {
            // A proxy between two Weirs may join the values.
            for hop in value.as_bytes().split(|&byte| byte == b',') {
                if hop.trim_ascii() == self.0.as_bytes() {
                    return Err(LoopError::CameBack);
                }
                count += 1;
            }
        }
        if count > HOPS_MAX { Err(LoopError::TooManyHops) } else { Ok(()) }
    }
}

/// The most Weirs before this one. Two before each other are a sidecar and a gateway.
const HOPS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_came_back_and_one_of_many_hops_are_refused() {
        let hops: Vec<Hop> = (0..5).map(|_| Hop::new()).collect();
        let mut headers = HeaderMap::new();
        for (count, hop) in hops.iter().enumerate() {
            let expected = if count > 3 { Err(LoopError::TooManyHops) } else { Ok(()) };
            assert_eq!(hop.check(&headers), expected, "{count}");
            hop.add_to(&mut headers);
            assert_eq!(hop.check(&headers), Err(LoopError::CameBack));
        }
    }

    #[test]
    fn values_that_a_proxy_joined_are_separate() {
        let hop = Hop::new();
        let joined = format!("a, {}", hop.0.to_str().unwrap());
        let headers = HeaderMap::from_iter([(VIA, HeaderValue::try_from(joined).unwrap())]);
        assert_eq!(hop.check(&headers), Err(LoopError::CameBack));
        let headers = HeaderMap::from_iter([(VIA, HeaderValue::from_static("a, b,c , d"))]);
        assert_eq!(hop.check(&headers), Err(LoopError::TooManyHops));
    }
}
