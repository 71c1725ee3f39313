//! The current time, which callers pass to the watch cache: the core reads no clock.

use std::time::Duration;

/// A point in time: the time since a fixed start of the caller's choice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now(pub Duration);
