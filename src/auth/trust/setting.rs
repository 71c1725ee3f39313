//! One part of the cluster's settings for authentication.

use std::sync::Arc;

use crate::auth::authenticator::metrics::CaState;

/// A part of the settings.
#[derive(Debug)]
pub(crate) enum Setting<T> {
    /// The part was not read yet.
    Unknown,
    /// The cluster has no such setting, so such certificates authenticate nobody.
    Unset,
    /// The current value.
    Set(Arc<T>),
}

impl<T> Setting<T> {
    /// Returns the value, if there is one.
    pub(crate) fn as_set(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Unknown | Self::Unset => None,
        }
    }

    /// Returns the state for the metrics.
    pub(super) fn state(&self) -> CaState {
        match self {
            Self::Unknown => CaState::Unknown,
            Self::Unset => CaState::Unset,
            Self::Set(_) => CaState::Set,
        }
    }
}

impl<T> Clone for Setting<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Unset => Self::Unset,
            Self::Set(value) => Self::Set(Arc::clone(value)),
        }
    }
}

impl<T> From<Option<T>> for Setting<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unset, |value| Self::Set(Arc::new(value)))
    }
}
