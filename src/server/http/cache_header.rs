//! The header `X-Weir-Cache`: whether a response came from a cache, and why it did not.

use http::{HeaderValue, Response};

use crate::server::http::body::Body;
use crate::server::http::headers::{CACHE_HEADER, StateAge};
use crate::server::metrics::CacheStatus;

/// Sets the header, by the origin of the response and the reason of a forwarded one.
pub(crate) fn set_cache_header(
    response: &mut Response<Body>,
    cache_status: CacheStatus,
    reason: &'static str,
    stale: bool,
) {
    let age = response.extensions_mut().remove::<StateAge>();
    let value = match cache_status {
        CacheStatus::Hit => hit_value(stale, age),
        CacheStatus::Forward => {
            let text = format!("forward; reason={reason}");
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("forward"))
        }
        CacheStatus::Error => return,
    };
    response.headers_mut().insert(CACHE_HEADER, value);
}

fn hit_value(stale: bool, age: Option<StateAge>) -> HeaderValue {
    let hit = if stale { "hit; decision=stale" } else { "hit" };
    let Some(StateAge { age, is_away }) = age else { return HeaderValue::from_static(hit) };
    let away = if is_away { "; upstream=away" } else { "" };
    let text = format!("{hit}{away}; age={}", age.as_secs());
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(hit))
}
