//! A run whose Weirs fill their caches from each other: its settings, and the addresses.

use serde::{Deserialize, Serialize};

/// The settings of a run whose Weirs are each other's siblings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Siblings {
    /// Whether one of the siblings is none: see [`crate::impostor`].
    pub(crate) has_impostor: bool,
    /// Whether one of the siblings is a Weir whose API server loses events, and which compares
    /// nothing. It has no clients.
    pub(crate) has_wrong_weir: bool,
}

/// The host name of the sibling that is none.
pub(crate) const IMPOSTOR: &str = "impostor";
/// The host name of the Weir whose caches are wrong.
pub(crate) const WRONG_WEIR: &str = "wrong-weir";

/// Returns the URL under which the Weirs know a host among their siblings. A sidecar answers to
/// loopback addresses alone, and needs no credentials there.
pub(crate) fn url(host: &str) -> String {
    let number = match host {
        IMPOSTOR => IMPOSTOR_NUMBER,
        WRONG_WEIR => WRONG_NUMBER,
        weir => weir.strip_prefix(WEIR).and_then(|number| number.parse().ok()).unwrap_or(0),
    };
    format!("http://{ADDRESS}{}", number + 1)
}

/// Returns the host at an address of [`url`]; `None` for any other address.
pub(crate) fn host(address: &str) -> Option<String> {
    let number: u8 = address.strip_prefix(ADDRESS)?.parse().ok()?;
    match number.checked_sub(1)? {
        IMPOSTOR_NUMBER => Some(IMPOSTOR.to_owned()),
        WRONG_NUMBER => Some(WRONG_WEIR.to_owned()),
        weir => Some(format!("{WEIR}{weir}")),
    }
}

const ADDRESS: &str = "127.0.1.";
const WEIR: &str = "weir-";
const IMPOSTOR_NUMBER: u8 = 100;
const WRONG_NUMBER: u8 = 101;
