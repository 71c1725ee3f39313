//! The origin of a response, as a label value.

crate::api::labels! {
    /// The cache status of a response: its origin.
    pub(crate) enum CacheStatus {
        /// A cache.
        Hit = "hit",
        /// The upstream.
        Forward = "forward",
        /// An error of Weir's own.
        Error = "error",
    }
}
