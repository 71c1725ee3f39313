//! Time as the watch cache sees it: an argument, never a clock.

use std::time::Duration;

/// A point on the driver's clock: time since some fixed start. The core never asks for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now(pub Duration);
