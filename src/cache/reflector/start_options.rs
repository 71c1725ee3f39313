//! How a new cache starts.

use crate::api::resource_version::ResourceVersion;

/// The start of the reflector of a new cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartOptions {
    /// The resourceVersion from which the first watcher wants to begin. The first list is tried at
    /// exactly this resourceVersion, so that it is in the history
    /// (`docs/decisions/herds.md`).
    pub(crate) list_at: Option<ResourceVersion>,
    /// Whether the first refusals of the upstream are not believed yet: an API server that starts
    /// answers 403 until it has read the roles.
    pub(crate) is_patient: bool,
    /// Whether the definition of the resource has just changed. Some instances of the upstream may
    /// still write the objects by the old one.
    pub(crate) is_redefined: bool,
}
