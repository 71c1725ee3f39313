//! Metrics of authentication. Each child of a family is looked up once, at registration.

use prometheus::{IntCounter, IntGauge};

use crate::auth::user::Credential;
use crate::telemetry::metrics::{Labelled, families};

families! {
    /// Handles of the metrics of authentication. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct AuthenticationMetrics {
        /// Requests and open watches whose client Weir authenticated or tried to, by credential and
        /// result.
        attempts: Labelled<Credential, Labelled<AuthenticationResult, IntCounter>> =
            counters_by_two("weir_authentication_attempts_total", ["credential", "result"]),
        /// State of the client CA and of the request-header CA: 1 for the current state, 0 for the
        /// others.
        ca_states: Labelled<CaKind, Labelled<CaState, IntGauge>> =
            gauges_by_two("weir_authentication_ca_state", ["ca", "state"]),
        /// Failures to read or parse a CA's setting, by CA.
        ca_failures: Labelled<CaKind, IntCounter> =
            counters_by("weir_authentication_ca_failures_total", "ca"),
    }
}

crate::api::labels! {
    /// The result of an authentication.
    pub enum AuthenticationResult {
        /// The client has a user.
        Ok = "ok",
        /// Its credential is invalid.
        Unauthorized = "unauthorized",
        /// Weir cannot authenticate the client now.
        Unavailable = "unavailable",
    }
}

crate::api::labels! {
    /// The CA that signs a kind of client certificates.
    pub enum CaKind {
        /// The CA of clients.
        Client = "client",
        /// The CA of front proxies.
        RequestHeader = "request-header",
    }
}

crate::api::labels! {
    /// The state of a CA's setting.
    pub enum CaState {
        /// The setting was not read yet.
        Unknown = "unknown",
        /// The cluster has no such CA.
        Unset = "unset",
        /// The cluster has one.
        Set = "set",
    }
}

impl AuthenticationMetrics {
    /// Counts an authentication.
    pub fn authenticated(&self, credential: Credential, result: AuthenticationResult) {
        self.attempts.get(credential).get(result).inc();
    }

    /// Returns how many invalid credentials of a kind were counted.
    #[cfg(test)]
    pub(super) fn unauthorized(&self, credential: Credential) -> u64 {
        self.attempts.get(credential).get(AuthenticationResult::Unauthorized).get()
    }

    /// Sets the state of a CA.
    pub fn set_ca_state(&self, ca: CaKind, state: CaState) {
        for one in CaState::ALL {
            self.ca_states.get(ca).get(one).set(i64::from(one == state));
        }
    }

    /// Counts a failure to read or parse a CA's setting.
    pub fn ca_failed(&self, ca: CaKind) {
        self.ca_failures.get(ca).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn a_ca_is_in_one_state() {
        let metrics = AuthenticationMetrics::register(&Registry::new()).unwrap();
        let states = |metrics: &AuthenticationMetrics| {
            let series = metrics.ca_states.get(CaKind::RequestHeader);
            CaState::ALL.map(|state| series.get(state).get())
        };
        metrics.set_ca_state(CaKind::RequestHeader, CaState::Unknown);
        metrics.set_ca_state(CaKind::RequestHeader, CaState::Set);
        assert_eq!(states(&metrics), [0, 0, 1]);
    }
}
