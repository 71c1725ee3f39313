//! The cost of requests, in several numbers.

/// The cost of requests. The numbers have fractions, since they decay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Requests.
    pub requests: f64,
    /// Those of them that were forwarded.
    pub forwarded: f64,
    /// Those of them that Weir refused.
    pub refused: f64,
    /// Bytes of response bodies.
    pub bytes: f64,
    /// Seconds of the API server's CPU, by estimate.
    pub upstream_seconds: f64,
    /// Seats of the API server, by estimate, times the seconds that they were taken.
    pub seat_seconds: f64,
    /// Seconds of Weir's CPU in which the requests were handled.
    pub cpu_seconds: f64,
    /// Watches that ended within a minute.
    pub short_watches: f64,
    /// Watches that began with a 410: their resourceVersion is too old.
    pub expired_watches: f64,
    /// Watches that began while the same client had two open that show the same.
    pub twin_watches: f64,
    /// Requests that came again before the `Retry-After` of their refusal was over.
    pub early_retries: f64,
    /// Responses with the API server's warning that the API is deprecated.
    pub deprecated: f64,
    /// Forwarded lists so large that they should have been read in pages.
    pub huge_lists: f64,
}

impl Cost {
    /// Adds another cost.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.forwarded += other.forwarded;
        self.refused += other.refused;
        self.bytes += other.bytes;
        self.upstream_seconds += other.upstream_seconds;
        self.seat_seconds += other.seat_seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.short_watches += other.short_watches;
        self.expired_watches += other.expired_watches;
        self.twin_watches += other.twin_watches;
        self.early_retries += other.early_retries;
        self.deprecated += other.deprecated;
        self.huge_lists += other.huge_lists;
    }

    /// Whether it shows a habit, whatever the verb.
    pub fn shows_habit(&self) -> bool {
        self.early_retries > 0.0 || self.deprecated > 0.0
    }

    /// Multiplies all numbers.
    pub fn scale(&mut self, factor: f64) {
        let Self { requests, forwarded, refused, bytes, upstream_seconds, .. } = self;
        for number in [requests, forwarded, refused, bytes, upstream_seconds] {
            *number *= factor;
        }
        let Self { seat_seconds, cpu_seconds, short_watches, expired_watches, .. } = self;
        for number in [seat_seconds, cpu_seconds, short_watches, expired_watches] {
            *number *= factor;
        }
        let Self { twin_watches, early_retries, deprecated, huge_lists, .. } = self;
        for number in [twin_watches, early_retries, deprecated, huge_lists] {
            *number *= factor;
        }
    }

    /// Returns the weight by which clients are ordered, in seconds: of seats and of CPU, and so
    /// little for each request that it only decides between equals.
    pub fn weight(&self) -> f64 {
        self.seat_seconds + self.cpu_seconds + REQUEST_SECONDS * self.requests
    }
}

/// The weight of a request that takes no time.
const REQUEST_SECONDS: f64 = 1e-6;
