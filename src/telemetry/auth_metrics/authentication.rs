//! Metrics of authentication.

use prometheus::{IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{counter_vec, gauge_vec};

/// The words for [`CredentialLabel`], in its order.
const CREDENTIALS: [&str; 4] = ["none", "token", "certificate", "front-proxy"];
/// The words for [`AuthenticationResult`], in its order.
const RESULTS: [&str; 3] = ["ok", "unauthorized", "unavailable"];
/// The words for [`CaKind`], in its order.
const CAS: [&str; 2] = ["client", "request-header"];
/// The words for [`CaState`], in its order.
const STATES: [&str; 3] = ["unknown", "unset", "set"];

/// See the module. Cheap to clone. Every child is looked up once.
#[derive(Clone, Debug)]
pub struct AuthenticationMetrics {
    by_credential: [[IntCounter; 3]; 4],
    ca_states: [[IntGauge; 3]; 2],
    ca_failures: [IntCounter; 2],
}

/// What a client showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialLabel {
    /// `none`
    None,
    /// `token`
    Token,
    /// `certificate`
    Certificate,
    /// `front-proxy`
    FrontProxy,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationResult {
    /// `ok`
    Ok,
    /// `unauthorized`
    Unauthorized,
    /// `unavailable`: it cannot be told here.
    Unavailable,
}

/// Whose CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaKind {
    /// `client`
    Client,
    /// `request-header`
    RequestHeader,
}

/// What is known of a CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaState {
    /// `unknown`
    Unknown,
    /// `unset`: the cluster has none.
    Unset,
    /// `set`
    Set,
}

impl AuthenticationMetrics {
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let requests = counter_vec(
            registry,
            "weir_authentication_total",
            "Questions who a client is, for requests that are not simply forwarded.",
            &["credential", "result"],
        )?;
        let states = gauge_vec(
            registry,
            "weir_authentication_ca_state",
            "1 for what is known of the CA of clients and of that of front proxies.",
            &["ca", "state"],
        )?;
        let failures = counter_vec(
            registry,
            "weir_authentication_ca_failures_total",
            "Times that the setting for a CA could not be had, or not be used.",
            &["ca"],
        )?;
        Ok(Self {
            by_credential: CREDENTIALS.map(|credential| {
                RESULTS.map(|result| requests.with_label_values(&[credential, result]))
            }),
            ca_states: CAS.map(|ca| STATES.map(|state| states.with_label_values(&[ca, state]))),
            ca_failures: CAS.map(|ca| failures.with_label_values(&[ca])),
        })
    }

    /// Counts an answer.
    pub fn authenticated(&self, credential: CredentialLabel, result: AuthenticationResult) {
        let [none, token, certificate, front_proxy] = &self.by_credential;
        let [ok, unauthorized, unavailable] = match credential {
            CredentialLabel::None => none,
            CredentialLabel::Token => token,
            CredentialLabel::Certificate => certificate,
            CredentialLabel::FrontProxy => front_proxy,
        };
        let counter = match result {
            AuthenticationResult::Ok => ok,
            AuthenticationResult::Unauthorized => unauthorized,
            AuthenticationResult::Unavailable => unavailable,
        };
        counter.inc();
    }

    /// Tells what is known of a CA from now on.
    pub fn ca(&self, ca: CaKind, state: CaState) {
        let [client, request_header] = &self.ca_states;
        let [unknown, unset, set] = match ca {
            CaKind::Client => client,
            CaKind::RequestHeader => request_header,
        };
        unknown.set(i64::from(state == CaState::Unknown));
        unset.set(i64::from(state == CaState::Unset));
        set.set(i64::from(state == CaState::Set));
    }

    /// Counts a look at a CA's setting that brought nothing.
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
        metrics.ca(CaKind::RequestHeader, CaState::Unknown);
        metrics.ca(CaKind::RequestHeader, CaState::Set);
        assert_eq!(states(&metrics), [0, 0, 1]);
    }
}
