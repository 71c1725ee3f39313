//! The cost of requests, in several numbers, and estimates of what they cost the API server.

/// Defines [`Cost`] with these fields, each a number.
macro_rules! cost {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// The cost of requests. The numbers have fractions, since they decay.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Cost {
            $($(#[$doc])* pub $field: f64,)*
        }

        impl Cost {
            /// Adds another cost.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Multiplies all numbers.
            pub fn scale(&mut self, factor: f64) {
                $(self.$field *= factor;)*
            }
        }
    };
}

cost! {
    /// Requests.
    requests,
    /// Those of them that were forwarded.
    forwarded,
    /// Those of them that Weir refused.
    refused,
    /// Bytes of response bodies.
    bytes,
    /// Seconds of the API server's CPU, by estimate.
    upstream_seconds,
    /// Seats of the API server, by estimate, times the seconds that they were taken.
    seat_seconds,
    /// Seconds of Weir's CPU in which the requests were handled.
    cpu_seconds,
    /// Watches that ended within a minute.
    short_watches,
    /// Watches that began with a 410: their resourceVersion is too old.
    expired_watches,
    /// Watches that began while the same client had two open that show the same.
    twin_watches,
    /// Requests that came again before the `Retry-After` of their refusal was over.
    early_retries,
    /// Responses with the API server's warning that the API is deprecated.
    deprecated,
    /// Forwarded lists so large that they should have been read in pages.
    huge_lists,
}

impl Cost {
    /// Whether it shows a habit, whatever the verb.
    pub fn shows_habit(&self) -> bool {
        self.early_retries > 0.0 || self.deprecated > 0.0
    }

    /// Returns the weight by which clients are ordered, in seconds: of seats and of CPU, and so
    /// little for each request that it only decides between equals.
    pub fn weight(&self) -> f64 {
        self.seat_seconds + self.cpu_seconds + REQUEST_SECONDS * self.requests
    }
}

/// Estimates the CPU time of the API server for a byte of a response as it was sent.
pub fn seconds_per_sent_byte(is_protobuf: bool, is_gzip: bool) -> f64 {
    let per_byte = if is_protobuf { SECONDS_PER_PROTOBUF_BYTE } else { SECONDS_PER_BYTE };
    if is_gzip { GZIP_RATIO * per_byte } else { per_byte }
}

/// The weight of a request that takes no time.
const REQUEST_SECONDS: f64 = 1e-6;
/// CPU seconds of kube-apiserver 1.36 for a byte of a list in JSON, as `benches/compare.rs`
/// measured them.
pub const SECONDS_PER_BYTE: f64 = 12e-9;
/// Its CPU seconds for a byte of a list in protobuf.
const SECONDS_PER_PROTOBUF_BYTE: f64 = 7e-9;
/// The bytes of objects for each byte of a response that is compressed: typical of lists.
pub const GZIP_RATIO: f64 = 8.0;
/// Its CPU seconds for a GET or another small request.
pub const SECONDS_PER_REQUEST: f64 = 0.25e-3;
/// Its CPU seconds for an event that it sends to a watch.
pub const SECONDS_PER_EVENT: f64 = 29e-6;
