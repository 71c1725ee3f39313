//! Metrics of authentication. Each child of a family is looked up once, at registration.

use prometheus::{IntCounter, IntGauge, Registry};

use crate::auth::user::Credential;
use crate::telemetry::metrics::{counter_vec, gauge_vec};

const CREDENTIALS: [Credential; 4] =
    [Credential::None, Credential::Token, Credential::Certificate, Credential::FrontProxy];
/// The label values of [`AuthenticationResult`], in its order.
const RESULTS: [&str; 3] = ["ok", "unauthorized", "unavailable"];
/// The label values of [`CaKind`], in its order.
const CAS: [&str; 2] = ["client", "request-header"];
/// The label values of [`CaState`], in its order.
const STATES: [&str; 3] = ["unknown", "unset", "set"];

/// Handles of the metrics of authentication. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthenticationMetrics {
    by_credential: [[IntCounter; 3]; 4],
    ca_states: [[IntGauge; 3]; 2],
    ca_failures: [IntCounter; 2],
}

/// The result of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationResult {
    /// `ok`
    Ok,
    /// `unauthorized`
    Unauthorized,
    /// `unavailable`: Weir cannot authenticate the client now.
    Unavailable,
}

/// The CA that signs a kind of client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaKind {
    /// `client`
    Client,
    /// `request-header`: the CA of front proxies.
    RequestHeader,
}

/// The state of a CA's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaState {
    /// `unknown`: the setting was not read yet.
    Unknown,
    /// `unset`: the cluster has no such CA.
    Unset,
    /// `set`
    Set,
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
            by_credential: CREDENTIALS.map(|credential| {
                RESULTS.map(|result| attempts.with_label_values(&[credential.as_str(), result]))
            }),
            ca_states: CAS.map(|ca| STATES.map(|state| states.with_label_values(&[ca, state]))),
            ca_failures: CAS.map(|ca| failures.with_label_values(&[ca])),
        })
    }

    /// Counts an authentication.
    pub fn authenticated(&self, credential: Credential, result: AuthenticationResult) {
        let [ok, unauthorized, unavailable] = self.of(credential);
        let counter = match result {
            AuthenticationResult::Ok => ok,
            AuthenticationResult::Unauthorized => unauthorized,
            AuthenticationResult::Unavailable => unavailable,
        };
        counter.inc();
    }

    fn of(&self, credential: Credential) -> &[IntCounter; 3] {
        let [none, token, certificate, front_proxy] = &self.by_credential;
        match credential {
            Credential::None => none,
            Credential::Token => token,
            Credential::Certificate => certificate,
            Credential::FrontProxy => front_proxy,
        }
    }

    /// Returns how many invalid credentials of a kind were counted.
    #[cfg(test)]
    pub(super) fn unauthorized(&self, credential: Credential) -> u64 {
        let [_, unauthorized, _] = self.of(credential);
        unauthorized.get()
    }

    /// Sets the state of a CA.
    pub fn set_ca_state(&self, ca: CaKind, state: CaState) {
        let [client, request_header] = &self.ca_states;
        let [unknown, unset, set] = match ca {
            CaKind::Client => client,
            CaKind::RequestHeader => request_header,
        };
        unknown.set(i64::from(state == CaState::Unknown));
        unset.set(i64::from(state == CaState::Unset));
        set.set(i64::from(state == CaState::Set));
    }

    /// Counts a failure to read or parse a CA's setting.
    pub fn ca_failed(&self, ca: CaKind) {
        let [client, request_header] = &self.ca_failures;
        match ca {
            CaKind::Client => client.inc(),
            CaKind::RequestHeader => request_header.inc(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_is_in_one_state() {
        let metrics = AuthenticationMetrics::register(&Registry::new()).unwrap();
        let states = |metrics: &AuthenticationMetrics| {
            metrics.ca_states[1].iter().map(IntGauge::get).collect::<Vec<_>>()
        };
        metrics.set_ca_state(CaKind::RequestHeader, CaState::Unknown);
        metrics.set_ca_state(CaKind::RequestHeader, CaState::Set);
        assert_eq!(states(&metrics), [0, 0, 1]);
    }
}
