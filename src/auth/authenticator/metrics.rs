//! Metrics of authentication. Each child of a family is looked up once, at registration.

use prometheus::{IntCounter, IntGauge, Registry};

use crate::auth::user::Credential;
use crate::telemetry::metrics::{Labelled, counter_vec, gauge_vec};

/// Handles of the metrics of authentication. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthenticationMetrics {
    attempts: Labelled<Credential, Labelled<AuthenticationResult, IntCounter>>,
    ca_states: Labelled<CaKind, Labelled<CaState, IntGauge>>,
    ca_failures: Labelled<CaKind, IntCounter>,
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
    /// Registers the metrics. Fails if called twice with the same registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let attempts = counter_vec(
            registry,
            "weir_authentication_attempts_total",
            "Requests and open watches whose client Weir authenticated or tried to, by credential and result.",
            &["credential", "result"],
        )?;
        let states = gauge_vec(
            registry,
            "weir_authentication_ca_state",
            "State of the client CA and of the request-header CA: 1 for the current state, 0 for the others.",
            &["ca", "state"],
        )?;
        let failures = counter_vec(
            registry,
            "weir_authentication_ca_failures_total",
            "Failures to read or parse a CA's setting, by CA.",
            &["ca"],
        )?;
        Ok(Self {
            attempts: Labelled::of_each(|credential: Credential| {
                Labelled::of_each(|result: AuthenticationResult| {
                    attempts.with_label_values(&[credential.as_str(), result.as_str()])
                })
            }),
            ca_states: Labelled::of_each(|ca: CaKind| {
                Labelled::of_each(|state: CaState| {
                    states.with_label_values(&[ca.as_str(), state.as_str()])
                })
            }),
            ca_failures: Labelled::new(&failures),
        })
    }

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
