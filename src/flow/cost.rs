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
    /// Seats of the API server, by estimate, times the seconds that they were taken.
    pub seat_seconds: f64,
    /// Seconds of Weir's CPU in which the requests were handled.
    pub cpu_seconds: f64,
    /// Watches that ended within a minute.
    pub short_watches: f64,
}

impl Cost {
    /// Adds another cost.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.forwarded += other.forwarded;
        self.refused += other.refused;
        self.bytes += other.bytes;
        self.seat_seconds += other.seat_seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.short_watches += other.short_watches;
    }

    /// Multiplies all numbers.
    pub fn scale(&mut self, factor: f64) {
        let Self { requests, forwarded, refused, bytes, seat_seconds, cpu_seconds, short_watches } =
            self;
        for number in
            [requests, forwarded, refused, bytes, seat_seconds, cpu_seconds, short_watches]
        {
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
